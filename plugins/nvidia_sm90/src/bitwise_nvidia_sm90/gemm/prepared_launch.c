/* Launches of kernels through the CUDA driver: what `driver_launches.launch_function` returns, in C.
 *
 * A Launch has the memory of the parameters of its kernels.  A call copies this memory, writes the tensor maps and the
 * addresses of its matrices at the beginning, and launches the kernels without the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#define MAP_BYTES 128
#define MOST_BYTES 8192      /* of the parameters of all kernels of a launch */
#define MOST_KERNELS 8
#define MOST_PARAMETERS 256  /* of all kernels */
#define MOST_MAPS 16

typedef int (*LaunchKernel)(const void *configuration, void *function, void **parameters, void **extra);

typedef struct {
    PyObject *table;  /* encoded maps by address */
    PyObject *encode; /* a function of an address that is not in the table */
    Py_ssize_t matrix;
} Map;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    LaunchKernel launch_kernel;
    int kernels, maps, matrices;
    void *functions[MOST_KERNELS];
    int ends[MOST_KERNELS];             /* the end of each kernel's offsets */
    uint16_t offsets[MOST_PARAMETERS];  /* of parameters in the memory */
    Map map[MOST_MAPS];
    char *constants;
    Py_ssize_t constant_bytes;
    PyObject *configure; /* a function of a stream: the addresses of the configurations, and what keeps them alive */
    PyObject *failed;    /* a function of a status and of the number of former failures; where it returns, the kernel is
                            launched again */
    uint64_t stream;
    PyObject *configured; /* the configurations of the last stream */
} Launch;

/* Return a new reference to the configurations of a stream. */
static PyObject *configurations(Launch *self, PyObject *stream)
{
    uint64_t handle = PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred())
        return NULL;
    if (self->configured != NULL && self->stream == handle)
        return Py_NewRef(self->configured);
    PyObject *found = PyObject_CallOneArg(self->configure, stream);
    if (found == NULL)
        return NULL;
    if (!PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != self->kernels + 1) {
        PyErr_SetString(PyExc_TypeError, "the configurations are no tuple of an address for each kernel and an object");
        Py_DECREF(found);
        return NULL;
    }
    self->stream = handle;
    Py_XSETREF(self->configured, Py_NewRef(found));
    return found;
}

/* Write the maps and the addresses of a call.  Return -1 with an error. */
static int write_parameters(Launch *self, char *memory, PyObject *const *addresses)
{
    for (int place = 0; place < self->maps; place++) {
        const Map *map = self->map + place;
        PyObject *address = addresses[map->matrix], *encoded = PyDict_GetItemWithError(map->table, address);
        if (encoded == NULL && PyErr_Occurred())
            return -1;
        encoded = encoded == NULL ? PyObject_CallOneArg(map->encode, address) : Py_NewRef(encoded);
        if (encoded == NULL)
            return -1;
        if (!PyBytes_CheckExact(encoded) || PyBytes_GET_SIZE(encoded) != MAP_BYTES) {
            PyErr_SetString(PyExc_TypeError, "a tensor map is not 128 bytes");
            Py_DECREF(encoded);
            return -1;
        }
        memcpy(memory + place * MAP_BYTES, PyBytes_AS_STRING(encoded), MAP_BYTES);
        Py_DECREF(encoded);
    }
    char *after = memory + self->maps * MAP_BYTES;
    for (int place = 0; place < self->matrices; place++) {
        uint64_t address = PyLong_AsUnsignedLongLong(addresses[place]);
        if (PyErr_Occurred())
            return -1;
        memcpy(after + 8 * place, &address, 8);
    }
    memcpy(after + 8 * self->matrices, self->constants, (size_t)self->constant_bytes);
    return 0;
}

/* launch(stream, *addresses) */
static PyObject *launch_call(Launch *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    _Alignas(64) char memory[MOST_BYTES];
    void *parameters[MOST_PARAMETERS], *configuration[MOST_KERNELS];
    if (PyVectorcall_NARGS(count) != 1 + self->matrices || names != NULL) {
        PyErr_Format(PyExc_TypeError, "a launch takes a stream and %d addresses", self->matrices);
        return NULL;
    }
    if (write_parameters(self, memory, arguments + 1) < 0)
        return NULL;
    PyObject *configured = configurations(self, arguments[0]);
    if (configured == NULL)
        return NULL;
    for (int kernel = 0; kernel < self->kernels; kernel++)
        configuration[kernel] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(configured, kernel));
    for (int place = 0; place < self->ends[self->kernels - 1]; place++)
        parameters[place] = memory + self->offsets[place];
    int kernel = 0, status = 0, failures = 0;
    while (kernel < self->kernels && !PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS
        for (; kernel < self->kernels; kernel++) {
            void **first = parameters + (kernel ? self->ends[kernel - 1] : 0);
            status = self->launch_kernel(configuration[kernel], self->functions[kernel], first, NULL);
            if (status)
                break;
        }
        Py_END_ALLOW_THREADS
        if (status) {
            PyObject *again = PyObject_CallFunction(self->failed, "ii", status, failures++);
            Py_XDECREF(again);
        }
    }
    Py_DECREF(configured);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static int add_map(Launch *self, PyObject *given)
{
    Map *map = self->map + self->maps;
    if (self->maps == MOST_MAPS) {
        PyErr_SetString(PyExc_ValueError, "too many tensor maps");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "nO!O", &map->matrix, &PyDict_Type, &map->table, &map->encode))
        return -1;
    Py_INCREF(map->table);
    Py_INCREF(map->encode);
    self->maps++;
    if (map->matrix < 0 || map->matrix >= self->matrices) {
        PyErr_SetString(PyExc_ValueError, "a tensor map of no matrix");
        return -1;
    }
    return 0;
}

static int add_kernel(Launch *self, PyObject *given)
{
    unsigned long long function;
    PyObject *offsets;
    if (!PyArg_ParseTuple(given, "KO!", &function, &PyTuple_Type, &offsets))
        return -1;
    int end = self->kernels ? self->ends[self->kernels - 1] : 0;
    Py_ssize_t count = PyTuple_GET_SIZE(offsets);
    if (self->kernels == MOST_KERNELS || end + count > MOST_PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "too many kernels or parameters");
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        long offset = PyLong_AsLong(PyTuple_GET_ITEM(offsets, place));
        if (PyErr_Occurred())
            return -1;
        if (offset < 0 || offset >= MOST_BYTES) {
            PyErr_SetString(PyExc_ValueError, "an offset behind the memory of the parameters");
            return -1;
        }
        self->offsets[end + place] = (uint16_t)offset;
    }
    self->functions[self->kernels] = (void *)(uintptr_t)function;
    self->ends[self->kernels++] = end + (int)count;
    return 0;
}

static PyObject *launch_new(PyTypeObject *type, PyObject *arguments, PyObject *options)
{
    unsigned long long launch_kernel;
    int matrices;
    PyObject *kernels, *maps, *constants, *configure, *failed;
    if (!PyArg_ParseTuple(arguments, "KO!iO!SOO", &launch_kernel, &PyTuple_Type, &kernels, &matrices, &PyTuple_Type,
                          &maps, &constants, &configure, &failed))
        return NULL;
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = (vectorcallfunc)launch_call;
    self->launch_kernel = (LaunchKernel)(uintptr_t)launch_kernel;
    self->matrices = matrices;
    self->configure = Py_NewRef(configure);
    self->failed = Py_NewRef(failed);
    self->constant_bytes = PyBytes_GET_SIZE(constants);
    self->constants = PyMem_Malloc((size_t)self->constant_bytes + 1);
    if (self->constants == NULL)
        PyErr_NoMemory();
    else
        memcpy(self->constants, PyBytes_AS_STRING(constants), (size_t)self->constant_bytes);
    for (Py_ssize_t place = 0; !PyErr_Occurred() && place < PyTuple_GET_SIZE(maps); place++)
        add_map(self, PyTuple_GET_ITEM(maps, place));
    for (Py_ssize_t place = 0; !PyErr_Occurred() && place < PyTuple_GET_SIZE(kernels); place++)
        add_kernel(self, PyTuple_GET_ITEM(kernels, place));
    if (!PyErr_Occurred()
        && (!self->kernels || MAP_BYTES * self->maps + 8 * (Py_ssize_t)matrices + self->constant_bytes > MOST_BYTES))
        PyErr_SetString(PyExc_ValueError, "no kernels, or too many parameters");
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void launch_dealloc(Launch *self)
{
    for (int place = 0; place < self->maps; place++) {
        Py_DECREF(self->map[place].table);
        Py_DECREF(self->map[place].encode);
    }
    Py_XDECREF(self->configure);
    Py_XDECREF(self->failed);
    Py_XDECREF(self->configured);
    PyMem_Free(self->constants);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject launch_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "prepared_launch.Launch",
    .tp_doc = "Launch(launch_kernel, kernels, matrices, maps, constants, configure, failed)\n\n"
              "A function of a stream and of the addresses of matrices.  `launch_kernel` is the address of the\n"
              "driver's function; `kernels` are the address of a function and the offsets of its parameters in the\n"
              "memory, each; `maps` are the number of a matrix, a table of encoded maps by address, and a function\n"
              "that encodes one, each.  The memory has the maps, the addresses and the constants.  Raises ValueError\n"
              "for too many.",
    .tp_basicsize = sizeof(Launch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Launch, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = launch_new,
    .tp_dealloc = (destructor)launch_dealloc,
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *launch, *device, *current_device, *current_stream, *elsewhere;
    long index;
} StreamLaunch;

/* launch(*addresses) */
static PyObject *stream_launch_call(StreamLaunch *self, PyObject *const *addresses, size_t count, PyObject *names)
{
    PyObject *given[MOST_PARAMETERS];
    Py_ssize_t matrices = PyVectorcall_NARGS(count);
    if (names != NULL || matrices >= MOST_PARAMETERS) {
        PyErr_SetString(PyExc_TypeError, "a launch takes addresses");
        return NULL;
    }
    PyObject *current = PyObject_CallNoArgs(self->current_device);
    if (current == NULL)
        return NULL;
    long index = PyLong_AsLong(current);
    Py_DECREF(current);
    if (PyErr_Occurred())
        return NULL;
    if (index != self->index)
        return PyObject_Vectorcall(self->elsewhere, addresses, (size_t)matrices, NULL);
    given[0] = PyObject_CallOneArg(self->current_stream, self->device);
    if (given[0] == NULL)
        return NULL;
    for (Py_ssize_t place = 0; place < matrices; place++)
        given[1 + place] = addresses[place];
    PyObject *found = PyObject_Vectorcall(self->launch, given, (size_t)matrices + 1, NULL);
    Py_DECREF(given[0]);
    return found;
}

static PyObject *stream_launch_new(PyTypeObject *type, PyObject *arguments, PyObject *options)
{
    PyObject *launch, *device, *current_device, *current_stream, *elsewhere;
    if (!PyArg_ParseTuple(arguments, "OO!OOO", &launch, &PyLong_Type, &device, &current_device, &current_stream,
                          &elsewhere))
        return NULL;
    long index = PyLong_AsLong(device);
    StreamLaunch *self = PyErr_Occurred() ? NULL : (StreamLaunch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = (vectorcallfunc)stream_launch_call;
    self->index = index;
    self->launch = Py_NewRef(launch);
    self->device = Py_NewRef(device);
    self->current_device = Py_NewRef(current_device);
    self->current_stream = Py_NewRef(current_stream);
    self->elsewhere = Py_NewRef(elsewhere);
    return (PyObject *)self;
}

static void stream_launch_dealloc(StreamLaunch *self)
{
    Py_XDECREF(self->launch);
    Py_XDECREF(self->device);
    Py_XDECREF(self->current_device);
    Py_XDECREF(self->current_stream);
    Py_XDECREF(self->elsewhere);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject stream_launch_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "prepared_launch.StreamLaunch",
    .tp_doc = "StreamLaunch(launch, device, current_device, current_stream, elsewhere)\n\n"
              "A function of addresses, which calls `launch` with the current stream of a device and the addresses,\n"
              "and `elsewhere` with the addresses alone where another device is the current one.",
    .tp_basicsize = sizeof(StreamLaunch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(StreamLaunch, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = stream_launch_new,
    .tp_dealloc = (destructor)stream_launch_dealloc,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "prepared_launch", .m_size = -1};

PyMODINIT_FUNC PyInit_prepared_launch(void)
{
    if (PyType_Ready(&launch_type) < 0 || PyType_Ready(&stream_launch_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL
        && (PyModule_AddObjectRef(module, "Launch", (PyObject *)&launch_type) < 0
            || PyModule_AddObjectRef(module, "StreamLaunch", (PyObject *)&stream_launch_type) < 0))
        Py_CLEAR(module);
    return module;
}
