/* A driver for tests: device memory is host memory, and a launch calls a function of the test. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*launch_function)(const char *code, const char *name, const uint32_t *shape, const void *arguments, uint64_t size);

static launch_function on_launch;
static const char *architecture = "gfx942:sramecc+:xnack-";
static int devices = 1, failing_calls, arch_offset;
static int64_t live;
static const char *loaded;
static char function_name[256];

void test_setup(launch_function function, const char *arch, int count, int offset) {
    on_launch = function; architecture = strdup(arch); devices = count; arch_offset = offset; live = 0; failing_calls = 0;
}
void test_fail(int number) { failing_calls = number; }
int64_t test_live(void) { return live; }

int hipInit(unsigned flags) { return 0; }
int hipGetDeviceCount(int *count) { *count = devices; return devices ? 0 : 100; }
int hipGetDevice(int *device) { *device = 0; return 0; }
int hipGetDevicePropertiesR0600(char *properties, int device) {
    strcpy(properties + arch_offset, architecture); return 0;
}
int hipMalloc(void **memory, size_t size) {
    if (failing_calls == 2) return 2;
    *memory = malloc(size); live++; return 0;
}
int hipFree(void *memory) { free(memory); live--; return 0; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int hipModuleLoadData(void **module, const void *image) { loaded = image; *module = &loaded; live++; return 0; }
int hipModuleUnload(void *module) { live--; return 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
    if (strlen(name) >= sizeof function_name || failing_calls == 500) return 500;
    strcpy(function_name, name); *function = function_name; return 0;
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
    if (parameters || !extra || stream) return 1;
    uint32_t shape[7] = {gx, gy, gz, bx, by, bz, shared};
    void *buffer = 0; uint64_t size = 0;
    for (int i = 0; extra[i] != (void *)3; i += 2) {
        if (extra[i] == (void *)1) buffer = extra[i + 1];
        if (extra[i] == (void *)2) size = *(uint64_t *)extra[i + 1];
    }
    on_launch(loaded, function, shape, buffer, size);
    return 0;
}
int hipDeviceSynchronize(void) { return 0; }
const char *hipGetErrorName(int code) { return "an error"; }
const char *hipGetErrorString(int code) { return "an error"; }
