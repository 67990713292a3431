/* What a pull has landed so far, kept in the target directory so that a later one can go on. Text, one record a line,
 * each with its checksum, appended and never rewritten; the newline is what makes a record count.
 *
 *     penstock-pull 1 SUM
 *     model MODEL_VERSION PLAN_MARK SUM     - for a peer that gives no version
 *     boot ID SUM                           what follows was written while the machine had this boot id
 *     chunk NUMBER DIGEST SUM               landed; - for a digest that was not computed
 *     lost NUMBER SUM                       not landed after all
 *     done FILE INODE MTIME_NS SUM          has its final name
 *
 * After another boot the bytes may never have reached the disk: such chunks are hashed before they are believed. */
#ifndef PENSTOCK_CLI_PULL_JOURNAL_H
#define PENSTOCK_CLI_PULL_JOURNAL_H

#include "pull_plan.h"

#define PULL_BOOT_MAX 64

/* What must be the same for an earlier pull's work to be of use. */
struct pull_identity {
    const char *version; /* "-": none */
    char mark[PULL_MARK_MAX];
    char boot[PULL_BOOT_MAX];
};

struct pull_past_chunk {
    uint64_t chunk;
    uint8_t digest[PENSTOCK_DIGEST_BYTES];
    bool landed, hashed, this_boot;
};

struct pull_past_done {
    uint64_t file, inode;
    int64_t mtime_ns;
};

enum pull_past_state { PULL_PAST_NONE, PULL_PAST_DAMAGED, PULL_PAST_OTHER, PULL_PAST_SAME };

/* What an earlier pull left. A chunk may be there several times: the last counts. */
struct pull_past {
    enum pull_past_state state; /* OTHER: another version of the model, or other files */
    BASE_VEC(struct pull_past_chunk) chunks;
    BASE_VEC(struct pull_past_done) done;
    size_t whole_bytes; /* the journal up to its last whole line */
};

/* Reads a journal's text. chunks and files bound the numbers in it. ENOMEM only: damage is a state. */
PENSTOCK_CHECKED int pull_past_read(const char *text, size_t len, const struct pull_identity *now, uint64_t chunks,
                                    uint64_t files, struct pull_past *past, struct penstock_error *error);
void pull_past_fini(struct pull_past *past);

struct pull_journal {
    int fd;
    bool failed; /* a record could not be written: a later pull knows less than it might */
};

/* Opens or makes DIR's journal and locks it. ELIMIT: another pull has it. */
PENSTOCK_CHECKED int pull_journal_open(int dir_fd, const char *dir, struct pull_journal *journal,
                                       struct penstock_error *error);
/* All of the journal's text; the caller frees. ECORRUPT: implausibly long. */
PENSTOCK_CHECKED int pull_journal_text(const struct pull_journal *journal, struct base_buf *text,
                                       struct penstock_error *error);
/* Cuts the journal to keep_bytes; with 0 a new one is begun. Then a boot record. */
PENSTOCK_CHECKED int pull_journal_begin(struct pull_journal *journal, const struct pull_identity *identity,
                                        size_t keep_bytes, struct penstock_error *error);
void pull_journal_chunk(struct pull_journal *journal, size_t chunk, const uint8_t *digest);
void pull_journal_lost(struct pull_journal *journal, size_t chunk);
void pull_journal_done(struct pull_journal *journal, size_t file, uint64_t inode, int64_t mtime_ns);

/* Removes the journal (whole = true: the pull is done with) and gives back the lock. */
void pull_journal_close(int dir_fd, struct pull_journal *journal, bool whole);

/* This boot's id, or "unknown" with something that no other boot has. */
void pull_boot_id(char out[PULL_BOOT_MAX]);

#endif
