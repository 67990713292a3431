/* A library that can be loaded, and is none that we can use. */
__attribute__((visibility("default"))) int ibv_get_device_list(void);

int ibv_get_device_list(void)
{
    return 0;
}
