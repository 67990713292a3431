# For people. The build is Meson's (meson.build); each target here is a script of scripts/.
.PHONY: demo check check-fast fuzz bench install clean

demo:            # build, serve a model, pull it, compare; MODEL=dir takes yours
	@scripts/demo "$(MODEL)"

check:           # everything: tests, sanitizers, lint, fuzzing
	@scripts/check

check-fast:      # build and unit tests
	@scripts/check --fast

fuzz:            # each decoder for 20 s, or SECONDS=n
	@scripts/fuzz $(or $(SECONDS),20)

bench:           # measure beside nginx (bench/README.md); GATES="one many ..." takes some
	@scripts/bench $(GATES)

install:         # DESTDIR and PREFIX as usual
	@scripts/setup build
	@meson setup $(if $(wildcard build-install/build.ninja),--reconfigure) build-install \
		$(if $(PREFIX),--prefix $(PREFIX)) --buildtype release -Dtests=disabled
	@meson install -C build-install

clean:
	@rm -rf build build-asan build-tsan build-fuzz build-bench build-install
