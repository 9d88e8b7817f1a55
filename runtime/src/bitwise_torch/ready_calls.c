/* Calls of PyTorch's operators that ran, ready to run again: `ready_launches` in C, for the most frequent calls.
 *
 * A Kernel is what PyTorch's dispatcher calls in place of a kernel of its own.  Where the thread has one scope, and the
 * Table of that scope keeps a call of the same operator and of operands of the same types, shapes, strides, devices and
 * alignments, it allocates the result and launches the call, or passes it on to PyTorch's kernel.  Where the thread has
 * no scopes, it calls PyTorch's kernel, and in all other cases the function of Python that it was made of.
 *
 * Tensors are read through PyTorch's stable functions for C, whose addresses `configure` receives.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_WORDS 160  /* of a key */
#define MOST_RESULTS 8  /* of a call */
#define CAPACITY 4096   /* calls of a table; a full one is emptied */
#define SLOTS 16384     /* a power of 2 */

/* The tags of the words of a key. */
enum { OPERATOR = 1, TENSOR, OBJECT, INTEGER, NUMBER, SEQUENCE, NAME };

/* A function of a tensor and of where its answer goes; it returns 0 where it succeeded. */
typedef int32_t (*Getter)(void *tensor, void *answer);

static struct {
    Getter data, sizes, strides, dim, dtype, device_type, device_index;
    PyTypeObject *tensor, *parameter, *dtype_type;
    PyObject *registry, *current_device;
} torch_of;

static PyObject *name_of_cdata, *name_of_default, *name_of_table;

/* ---- tensors ---- */

/* Set the address of a tensor's implementation, to which PyTorch's at::Tensor is a pointer.  Return -1 with an error.
 */
static int implementation_of(PyObject *tensor, void **found)
{
    PyObject *number = PyObject_GetAttr(tensor, name_of_cdata);
    if (number == NULL)
        return -1;
    *found = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return *found == NULL && PyErr_Occurred() ? -1 : 0;
}

/* The greatest power of 2 below 256 that divides an address, 0 for multiples of 256. */
static int64_t alignment_of(void *address)
{
    uint64_t at = (uint64_t)address;
    return (int64_t)(at & (0 - at) & 255);
}

typedef struct {
    int64_t words[MOST_WORDS];
    int count;
} Key;

/* Add the words of an argument to a key, and its address where it is a tensor.
 * Return 1 where it was added, 0 for an argument that no key holds, and -1 with an error. */
static int add_argument(Key *key, PyObject *argument, void **address)
{
    PyTypeObject *type = Py_TYPE(argument);
    *address = NULL;
    if (type == torch_of.tensor || type == torch_of.parameter) {
        void *tensor;
        int64_t dim, *sizes, *strides;
        int32_t dtype, device_type, device_index;
        if (implementation_of(argument, &tensor) < 0)
            return -1;
        if (torch_of.dim(&tensor, &dim) || torch_of.sizes(&tensor, &sizes) || torch_of.strides(&tensor, &strides)
            || torch_of.dtype(&tensor, &dtype) || torch_of.device_type(&tensor, &device_type)
            || torch_of.device_index(&tensor, &device_index) || torch_of.data(&tensor, address))
            return 0;
        if (key->count + 3 + 2 * dim > MOST_WORDS)
            return 0;
        int64_t *words = key->words + key->count;
        *words++ = TENSOR | (int64_t)(type == torch_of.parameter) << 8 | dim << 16 | alignment_of(*address) << 32;
        *words++ = (int64_t)(uint32_t)dtype | (int64_t)device_type << 32;
        *words++ = device_index;
        for (int64_t axis = 0; axis < dim; axis++) {
            *words++ = sizes[axis];
            *words++ = strides[axis];
        }
        key->count += 3 + 2 * (int)dim;
        return 1;
    }
    if (key->count + 2 > MOST_WORDS)
        return 0;
    int64_t *words = key->words + key->count;
    if (argument == Py_None || argument == Py_True || argument == Py_False || type == torch_of.dtype_type) {
        words[0] = OBJECT;
        words[1] = (int64_t)argument; /* there is one object of each, and none ends */
    } else if (PyLong_CheckExact(argument)) {
        int overflow;
        words[0] = INTEGER;
        words[1] = PyLong_AsLongLongAndOverflow(argument, &overflow);
        if (overflow)
            return 0;
    } else if (PyFloat_CheckExact(argument)) {
        double value = PyFloat_AS_DOUBLE(argument);
        words[0] = NUMBER;
        memcpy(words + 1, &value, sizeof value);
    } else if (PyList_CheckExact(argument)) {
        Py_ssize_t size = PyList_GET_SIZE(argument);
        if (key->count + 2 + 2 * size > MOST_WORDS)
            return 0;
        words[0] = SEQUENCE;
        words[1] = size;
        key->count += 2;
        for (Py_ssize_t place = 0; place < size; place++) {
            PyObject *item = PyList_GET_ITEM(argument, place);
            void *ignored;
            if ((!PyLong_CheckExact(item) && !PyBool_Check(item)) || add_argument(key, item, &ignored) != 1)
                return 0;
        }
        return 1;
    } else
        return 0;
    key->count += 2;
    return 1;
}

static uint64_t hash_of(const Key *key)
{
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (int place = 0; place < key->count; place++) {
        hash = (hash ^ (uint64_t)key->words[place]) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Make the key of a call, whose last arguments have names, and write the addresses of its tensors.
 * Return their number, -1 for a call that has no key, and -2 with an error. */
static int key_of(Key *key, PyObject *operator, PyObject *const *arguments, Py_ssize_t count, PyObject *names,
                  void **addresses)
{
    int tensors = 0;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    key->words[0] = OPERATOR;
    key->words[1] = (int64_t)operator; /* an interned text, which entries keep */
    key->count = 2;
    for (Py_ssize_t place = 0; place < count + named; place++) {
        void *address;
        int added = add_argument(key, arguments[place], &address);
        if (added <= 0)
            return added - 1;
        if (place >= count) {
            if (key->count + 2 > MOST_WORDS)
                return -1;
            PyObject *name = Py_NewRef(PyTuple_GET_ITEM(names, place - count));
            PyUnicode_InternInPlace(&name); /* entries keep their names, so that no other text has their addresses */
            key->words[key->count++] = NAME;
            key->words[key->count++] = (int64_t)name;
            Py_DECREF(name);
        }
        if (Py_TYPE(arguments[place]) == torch_of.tensor || Py_TYPE(arguments[place]) == torch_of.parameter)
            addresses[tensors++] = address;
    }
    return tensors;
}

/* ---- a table of calls ---- */

typedef struct {
    int users; /* the table, and each call that runs */
    Key key;
    uint64_t hash;
    PyObject *operator, *names, *counter;
    PyObject *launch; /* NULL for a call that is passed on */
    PyObject *empty, *shape, *strides, *dtype; /* NULL for a call with an output among its arguments */
    PyObject *results; /* of a call with several: of each None or a shape, strides, a dtype and an alignment */
    int64_t alignment;
    long device;
    Py_ssize_t output; /* its place among the arguments; it is the last tensor */
    int64_t *extents;  /* of all tensors, the bytes from the first to behind the last one */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry **slots;
    int count;
    PyObject *registry; /* the registry of plugins of all entries */
} Table;

static PyTypeObject table_type;

static void release(Entry *entry)
{
    if (--entry->users)
        return;
    Py_XDECREF(entry->operator);
    Py_XDECREF(entry->names);
    Py_XDECREF(entry->launch);
    Py_XDECREF(entry->empty);
    Py_XDECREF(entry->shape);
    Py_XDECREF(entry->strides);
    Py_XDECREF(entry->dtype);
    Py_XDECREF(entry->results);
    Py_XDECREF(entry->counter);
    PyMem_Free(entry->extents);
    PyMem_Free(entry);
}

static void clear_table(Table *table)
{
    table->count = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        Entry *entry = table->slots[slot];
        table->slots[slot] = NULL;
        if (entry != NULL)
            release(entry);
    }
    Py_CLEAR(table->registry);
}

/* Return the slot of a key, which is empty where the table has no such entry. */
static Entry **slot_of(Table *table, const Key *key, uint64_t hash)
{
    for (uint64_t place = hash;; place++) {
        Entry **slot = table->slots + (place & (SLOTS - 1)), *entry = *slot;
        if (entry == NULL
            || (entry->hash == hash && entry->key.count == key->count
                && memcmp(entry->key.words, key->words, sizeof(int64_t) * (size_t)key->count) == 0))
            return slot;
    }
}

/* Return whether the current registry of plugins is that of the table, and the current device that of the entry; -1
 * with an error. */
static int still_holds(const Table *table, const Entry *entry)
{
    PyObject *registry = PyObject_CallMethodNoArgs(torch_of.registry, name_of_default);
    if (registry == NULL)
        return -1;
    Py_DECREF(registry);
    if (registry != table->registry)
        return 0;
    if (entry->launch == NULL)
        return 1;
    PyObject *device = PyObject_CallNoArgs(torch_of.current_device);
    if (device == NULL)
        return -1;
    long index = PyLong_AsLong(device);
    Py_DECREF(device);
    return PyErr_Occurred() ? -1 : index == entry->device;
}

/* Add 1 to the number that an object with a buffer holds.  Return -1 with an error. */
static int count_call(PyObject *counter)
{
    Py_buffer memory;
    if (PyObject_GetBuffer(counter, &memory, PyBUF_WRITABLE) < 0)
        return -1;
    ++*(int64_t *)memory.buf;
    PyBuffer_Release(&memory);
    return 0;
}

/* Launch the call of an entry on so many addresses, the last of which are those of `out`, a result or a tuple of them.
 * Return `out`, or NULL with an error. */
static PyObject *launched_on(const Entry *entry, void **addresses, int tensors, PyObject *out)
{
    PyObject *numbers[MOST_WORDS], *found = NULL;
    int made = 0;
    for (; made < tensors; made++)
        if ((numbers[made] = PyLong_FromVoidPtr(addresses[made])) == NULL)
            goto end;
    found = PyObject_Vectorcall(entry->launch, numbers, (size_t)made, NULL);
    if (found != NULL && entry->counter != NULL && count_call(entry->counter) < 0)
        Py_CLEAR(found);
    if (found != NULL)
        Py_SETREF(found, Py_NewRef(out));
end:
    while (made > 0)
        Py_DECREF(numbers[--made]);
    return found;
}

/* Allocate the result of an entry and launch its call.  Return the result, or NULL, without an error where the memory
 * has another alignment. */
static PyObject *launched(const Entry *entry, void **addresses, int tensors)
{
    PyObject *memory[] = {entry->shape, entry->strides, entry->dtype}, *found = NULL;
    void *tensor;
    PyObject *out = PyObject_Vectorcall(entry->empty, memory, 3, NULL);
    if (out == NULL)
        return NULL;
    if (implementation_of(out, &tensor) == 0 && !torch_of.data(&tensor, addresses + tensors)
        && alignment_of(addresses[tensors]) == entry->alignment)
        found = launched_on(entry, addresses, tensors + 1, out);
    Py_DECREF(out);
    return found;
}

/* Allocate the results of an entry and launch its call.  Return the results, or NULL, without an error where the memory
 * of one has another alignment. */
static PyObject *launched_several(const Entry *entry, void **addresses, int tensors)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entry->results);
    PyObject *results = PyTuple_New(count), *found = NULL;
    for (Py_ssize_t place = 0; results != NULL && place < count; place++) {
        PyObject *memory = PyTuple_GET_ITEM(entry->results, place);
        if (memory == Py_None) {
            PyTuple_SET_ITEM(results, place, Py_NewRef(Py_None));
            continue;
        }
        void *tensor;
        PyObject *out = PyObject_Vectorcall(entry->empty, ((PyTupleObject *)memory)->ob_item, 3, NULL);
        if (out == NULL)
            goto end;
        PyTuple_SET_ITEM(results, place, out);
        if (implementation_of(out, &tensor) < 0 || torch_of.data(&tensor, addresses + tensors)
            || alignment_of(addresses[tensors]) != PyLong_AsLongLong(PyTuple_GET_ITEM(memory, 3)))
            goto end;
        tensors++;
    }
    if (results != NULL)
        found = launched_on(entry, addresses, tensors, results);
end:
    Py_XDECREF(results);
    return found;
}

/* Launch the call of an entry into its output.  Return the output, or NULL, without an error where it shares memory
 * with an operand. */
static PyObject *launched_into(const Entry *entry, void **addresses, int tensors, PyObject *out)
{
    const char *target = addresses[tensors - 1];
    for (int place = 0; place < tensors - 1; place++) {
        const char *operand = addresses[place];
        if (target < operand + entry->extents[place] && operand < target + entry->extents[tensors - 1])
            return NULL;
    }
    return launched_on(entry, addresses, tensors, out);
}

/* Run a call that the table keeps.  Return its result, or NULL, without an error where it is not kept, and where it is
 * to be passed on. */
static PyObject *run(Table *table, PyObject *operator, PyObject *const *arguments, Py_ssize_t count, PyObject *names,
                     int *pass_on)
{
    Key key;
    void *addresses[MOST_WORDS];
    int tensors = table->count ? key_of(&key, operator, arguments, count, names, addresses) : -1;
    Entry *entry = tensors < 0 ? NULL : *slot_of(table, &key, hash_of(&key));
    if (entry == NULL)
        return NULL;
    entry->users++; /* what is called may empty the table */
    PyObject *found = NULL;
    if (still_holds(table, entry) == 1) {
        if (entry->launch != NULL && entry->results != NULL)
            found = launched_several(entry, addresses, tensors);
        else if (entry->launch != NULL && entry->extents != NULL)
            found = launched_into(entry, addresses, tensors, arguments[entry->output]);
        else if (entry->launch != NULL)
            found = launched(entry, addresses, tensors);
        else
            *pass_on = count_call(entry->counter) == 0;
    }
    release(entry);
    return found;
}

/* Return a new entry of a call for the current plugins, whose registry is written.  Return NULL, without an error for
 * arguments that no key holds. */
static Entry *entry_of(PyObject *operator, PyObject *const *arguments, Py_ssize_t count, PyObject *names,
                       PyObject **registry)
{
    void *addresses[MOST_WORDS];
    Entry *entry = PyMem_Calloc(1, sizeof *entry);
    if (entry == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    entry->users = 1;
    entry->operator = Py_NewRef(operator);
    PyUnicode_InternInPlace(&entry->operator);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    entry->names = PyTuple_New(named);
    for (Py_ssize_t place = 0; entry->names != NULL && place < named; place++) {
        PyObject *name = Py_NewRef(PyTuple_GET_ITEM(names, place));
        PyUnicode_InternInPlace(&name);
        PyTuple_SET_ITEM(entry->names, place, name);
    }
    if (entry->names == NULL || key_of(&entry->key, entry->operator, arguments, count, names, addresses) < 0
        || (*registry = PyObject_CallMethodNoArgs(torch_of.registry, name_of_default)) == NULL) {
        release(entry);
        return NULL;
    }
    entry->hash = hash_of(&entry->key);
    return entry;
}

/* Add an entry to a table, which takes it and the registry. */
static void add_entry(Table *table, Entry *entry, PyObject *registry)
{
    if (table->registry != registry || table->count >= CAPACITY)
        clear_table(table);
    Py_XSETREF(table->registry, registry);
    Entry **slot = slot_of(table, &entry->key, entry->hash), *former = *slot;
    *slot = entry;
    if (former == NULL)
        table->count++;
    else
        release(former);
}

static PyObject *table_keep(Table *table, PyObject *arguments)
{
    PyObject *operator, *operands, *launch, *empty, *shape, *strides, *dtype, *counter, *registry;
    long long alignment;
    long device;
    if (!PyArg_ParseTuple(arguments, "UO!OOO!O!OLlO", &operator, &PyTuple_Type, &operands, &launch, &empty,
                          &PyTuple_Type, &shape, &PyTuple_Type, &strides, &dtype, &alignment, &device, &counter))
        return NULL;
    PyObject *const *given = ((PyTupleObject *)operands)->ob_item;
    Entry *entry = entry_of(operator, given, PyTuple_GET_SIZE(operands), NULL, &registry);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    entry->launch = Py_NewRef(launch);
    entry->empty = Py_NewRef(empty);
    entry->shape = Py_NewRef(shape);
    entry->strides = Py_NewRef(strides);
    entry->dtype = Py_NewRef(dtype);
    entry->counter = counter == Py_None ? NULL : Py_NewRef(counter);
    entry->alignment = alignment;
    entry->device = device;
    add_entry(table, entry, registry);
    Py_RETURN_TRUE;
}

/* Return whether an object is a tuple of None and of tuples of a shape, strides, a dtype and an alignment. */
static int are_results(PyObject *given)
{
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(given); place++) {
        PyObject *each = PyTuple_GET_ITEM(given, place);
        if (each != Py_None
            && (!PyTuple_CheckExact(each) || PyTuple_GET_SIZE(each) != 4
                || !PyLong_CheckExact(PyTuple_GET_ITEM(each, 3))))
            return 0;
    }
    return PyTuple_GET_SIZE(given) <= MOST_RESULTS;
}

static PyObject *table_keep_several(Table *table, PyObject *arguments)
{
    PyObject *operator, *operands, *launch, *empty, *results, *registry;
    long device;
    if (!PyArg_ParseTuple(arguments, "UO!OOO!l", &operator, &PyTuple_Type, &operands, &launch, &empty, &PyTuple_Type,
                          &results, &device))
        return NULL;
    if (!are_results(results)) {
        PyErr_SetString(PyExc_TypeError, "give a shape, strides, a dtype and an alignment of each result, or None");
        return NULL;
    }
    PyObject *const *given = ((PyTupleObject *)operands)->ob_item;
    Entry *entry = entry_of(operator, given, PyTuple_GET_SIZE(operands), NULL, &registry);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    entry->launch = Py_NewRef(launch);
    entry->empty = Py_NewRef(empty);
    entry->results = Py_NewRef(results);
    entry->device = device;
    add_entry(table, entry, registry);
    Py_RETURN_TRUE;
}

/* Return the extents of a tuple of numbers, or NULL with an error. */
static int64_t *extents_of(PyObject *given)
{
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    int64_t *found = PyMem_Calloc((size_t)count + 1, sizeof *found);
    if (found == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t place = 0; place < count; place++)
        found[place] = PyLong_AsLongLong(PyTuple_GET_ITEM(given, place));
    if (PyErr_Occurred()) {
        PyMem_Free(found);
        return NULL;
    }
    return found;
}

static PyObject *table_keep_into(Table *table, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *registry;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names), output = 0;
    while (output < named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, output), "out") != 0)
        output++;
    if (count < 5 || output == named || !PyUnicode_CheckExact(given[0]) || !PyTuple_CheckExact(given[2])
        || !PyLong_CheckExact(given[3])) {
        PyErr_SetString(PyExc_TypeError, "give an operator, a launch, extents, a device, a counter, and the arguments "
                                         "of a call with an output");
        return NULL;
    }
    Py_ssize_t tensors = 0, last = 0;
    for (Py_ssize_t place = 5; place < count + named; place++)
        if (Py_TYPE(given[place]) == torch_of.tensor || Py_TYPE(given[place]) == torch_of.parameter) {
            tensors++;
            last = place;
        }
    if (last != count + output)
        Py_RETURN_FALSE; /* the output is not the last tensor */
    long device = PyLong_AsLong(given[3]);
    if (PyErr_Occurred())
        return NULL;
    if (PyTuple_GET_SIZE(given[2]) != tensors)
        Py_RETURN_FALSE;
    Entry *entry = entry_of(given[0], given + 5, count - 5, names, &registry);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    entry->extents = extents_of(given[2]);
    if (entry->extents == NULL) {
        Py_DECREF(registry);
        release(entry);
        return NULL;
    }
    entry->launch = Py_NewRef(given[1]);
    entry->counter = given[4] == Py_None ? NULL : Py_NewRef(given[4]);
    entry->output = count - 5 + output;
    entry->device = device;
    add_entry(table, entry, registry);
    Py_RETURN_TRUE;
}

static PyObject *table_pass_on(Table *table, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *registry;
    if (count < 2 || !PyUnicode_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "give an operator, a counter, and the arguments of a call");
        return NULL;
    }
    Entry *entry = entry_of(given[0], given + 2, count - 2, names, &registry);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    entry->counter = Py_NewRef(given[1]);
    add_entry(table, entry, registry);
    Py_RETURN_TRUE;
}

static PyObject *table_new(PyTypeObject *type, PyObject *arguments, PyObject *options)
{
    if (!PyArg_ParseTuple(arguments, ""))
        return NULL;
    Table *table = (Table *)type->tp_alloc(type, 0);
    if (table == NULL)
        return NULL;
    table->slots = PyMem_Calloc(SLOTS, sizeof *table->slots);
    if (table->slots == NULL) {
        Py_DECREF(table);
        return PyErr_NoMemory();
    }
    return (PyObject *)table;
}

static void table_dealloc(Table *table)
{
    if (table->slots != NULL) {
        clear_table(table);
        PyMem_Free(table->slots);
    }
    Py_TYPE(table)->tp_free((PyObject *)table);
}

static PyMethodDef table_methods[] = {
    {"keep", (PyCFunction)table_keep, METH_VARARGS,
     "keep(operator, arguments, launch, empty, shape, strides, dtype, alignment, device, counter)\n\n"
     "Keep the launch of a call, a function of the addresses of its tensors and of its result, which is\n"
     "empty(shape, strides, dtype) on a device, at an address of an alignment.  Each repetition is added to\n"
     "`counter`, an object with a buffer of one integer of 64 bits, or None.  Return False for arguments that no key\n"
     "holds."},
    {"keep_several", (PyCFunction)table_keep_several, METH_VARARGS,
     "keep_several(operator, arguments, launch, empty, results, device)\n\n"
     "Keep the launch of a call with several results, of each of which a tuple has the shape, the strides, the dtype and\n"
     "the alignment, or None for one that is None and has no address.  See `keep`."},
    {"keep_into", (PyCFunction)(void (*)(void))table_keep_into, METH_FASTCALL | METH_KEYWORDS,
     "keep_into(operator, launch, extents, device, counter, *arguments, **options)\n\n"
     "Keep the launch of a call whose output is the option `out`, a function of the addresses of its tensors.\n"
     "`extents` are their bytes, from the first to behind the last one; a call whose output shares memory with another\n"
     "tensor is not repeated.  See `keep`."},
    {"pass_on", (PyCFunction)(void (*)(void))table_pass_on, METH_FASTCALL | METH_KEYWORDS,
     "pass_on(operator, counter, *arguments, **options)\n\n"
     "Let PyTorch's kernel compute all repetitions of a call; see `keep`."},
    {NULL},
};

static PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ready_calls.Table",
    .tp_doc = "Calls that ran, by all that decides them.",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = table_new,
    .tp_dealloc = (destructor)table_dealloc,
    .tp_methods = table_methods,
};

/* ---- a kernel ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *operator, *key, *is_there, *read, *call_boxed, *keys, *group;
} Kernel;

/* A call that PyTorch's kernel computes now: the key of its group of operators, and the call that it is a part of. */
typedef struct Passed {
    PyObject *key;
    const struct Passed *outer;
} Passed;

static _Thread_local const Passed *passed_on;

/* Return whether a kernel runs inside of a call of its group that was passed on. */
static int is_inside(const Kernel *kernel)
{
    for (const Passed *call = passed_on; call != NULL; call = call->outer)
        if (call->key == kernel->key)
            return 1;
    return 0;
}

/* Call PyTorch's kernel. */
static PyObject *original(const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    PyObject *given[MOST_WORDS];
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (all >= MOST_WORDS)
        return PyObject_Vectorcall(kernel->function, arguments, (size_t)count, names);
    given[0] = kernel->keys;
    memcpy(given + 1, arguments, sizeof *given * (size_t)all);
    return PyObject_Vectorcall(kernel->call_boxed, given, (size_t)count + 1, names);
}

/* Return a new reference to the scopes of this thread, or NULL, without an error where it has no object of them. */
static PyObject *scopes_of_thread(const Kernel *kernel)
{
    PyObject *there = PyObject_CallOneArg(kernel->is_there, kernel->key);
    if (there == NULL)
        return NULL;
    Py_DECREF(there);
    return there == Py_True ? PyObject_CallOneArg(kernel->read, kernel->key) : NULL;
}

/* Run a call that the table of a scope keeps, or of a group of operators for threads without scopes; see `run`. */
static PyObject *run_in(PyObject *owner, const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *names, int *pass_on)
{
    PyObject *table = PyObject_GetAttr(owner, name_of_table), *found = NULL;
    if (table != NULL && Py_TYPE(table) == &table_type)
        found = run((Table *)table, kernel->operator, arguments, count, names, pass_on);
    Py_XDECREF(table);
    return found;
}

/* Return whether no thread has a scope, so that PyTorch's kernel runs. */
static int is_idle(const Kernel *kernel)
{
    PyObject *table = PyObject_GetAttr(kernel->group, name_of_table);
    int idle = table != NULL && PyTuple_CheckExact(table);
    Py_XDECREF(table);
    return idle;
}

static PyObject *kernel_call(Kernel *kernel, PyObject *const *arguments, size_t given, PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(given);
    if (is_inside(kernel)) /* operators that run inside of another one are not intercepted */
        return original(kernel, arguments, count, names);
    PyObject *scopes = scopes_of_thread(kernel), *found = NULL;
    int pass_on = 0;
    if (scopes == NULL || scopes == Py_None) {
        if (!PyErr_Occurred() && is_idle(kernel))
            found = original(kernel, arguments, count, names);
        else if (!PyErr_Occurred())
            found = run_in(kernel->group, kernel, arguments, count, names, &pass_on);
    } else if (PyTuple_CheckExact(scopes)) {
        if (PyTuple_GET_SIZE(scopes) == 0)
            found = original(kernel, arguments, count, names);
        else if (PyTuple_GET_SIZE(scopes) == 1)
            found = run_in(PyTuple_GET_ITEM(scopes, 0), kernel, arguments, count, names, &pass_on);
    }
    if (pass_on) {
        Passed call = {kernel->key, passed_on};
        passed_on = &call;
        found = original(kernel, arguments, count, names);
        passed_on = call.outer;
    }
    Py_XDECREF(scopes);
    if (found != NULL || PyErr_Occurred())
        return found;
    return PyObject_Vectorcall(kernel->function, arguments, given, names);
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *arguments, PyObject *options)
{
    PyObject *function, *operator, *key, *is_there, *read, *call_boxed, *keys, *group;
    if (!PyArg_ParseTuple(arguments, "OUUOOOOO", &function, &operator, &key, &is_there, &read, &call_boxed, &keys,
                          &group))
        return NULL;
    Kernel *kernel = (Kernel *)type->tp_alloc(type, 0);
    if (kernel == NULL)
        return NULL;
    kernel->call = (vectorcallfunc)kernel_call;
    kernel->function = Py_NewRef(function);
    kernel->operator = Py_NewRef(operator);
    PyUnicode_InternInPlace(&kernel->operator);
    kernel->key = Py_NewRef(key);
    kernel->is_there = Py_NewRef(is_there);
    kernel->read = Py_NewRef(read);
    kernel->call_boxed = Py_NewRef(call_boxed);
    kernel->keys = Py_NewRef(keys);
    kernel->group = Py_NewRef(group);
    return (PyObject *)kernel;
}

static void kernel_dealloc(Kernel *kernel)
{
    Py_XDECREF(kernel->function);
    Py_XDECREF(kernel->operator);
    Py_XDECREF(kernel->key);
    Py_XDECREF(kernel->is_there);
    Py_XDECREF(kernel->read);
    Py_XDECREF(kernel->call_boxed);
    Py_XDECREF(kernel->keys);
    Py_XDECREF(kernel->group);
    Py_TYPE(kernel)->tp_free((PyObject *)kernel);
}

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ready_calls.Kernel",
    .tp_doc = "Kernel(function, operator, key, is_there, read, call_boxed, keys, group)\n\n"
              "A function of Python for an operator, which calls a table that keeps a call instead.  `is_there` and\n"
              "`read` are functions of a key: whether this thread has scopes, and its scopes.  `call_boxed` is\n"
              "PyTorch's kernel, a function of `keys` and of the arguments.  A thread without an object of scopes has\n"
              "the table of `group`, or where that is a tuple PyTorch's kernel.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Kernel, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = kernel_new,
    .tp_dealloc = (destructor)kernel_dealloc,
};

/* ---- the module ---- */

static PyObject *configure(PyObject *module, PyObject *arguments)
{
    unsigned long long at[7];
    PyObject *tensor, *parameter, *dtype_type, *registry, *current_device;
    if (!PyArg_ParseTuple(arguments, "(KKKKKKK)O!O!O!OO", at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6,
                          &PyType_Type, &tensor, &PyType_Type, &parameter, &PyType_Type, &dtype_type, &registry,
                          &current_device))
        return NULL;
    Getter *getters[] = {&torch_of.data,  &torch_of.sizes,       &torch_of.strides,     &torch_of.dim,
                         &torch_of.dtype, &torch_of.device_type, &torch_of.device_index};
    for (int place = 0; place < 7; place++)
        *getters[place] = (Getter)(uintptr_t)at[place];
    torch_of.tensor = (PyTypeObject *)Py_NewRef(tensor);
    torch_of.parameter = (PyTypeObject *)Py_NewRef(parameter);
    torch_of.dtype_type = (PyTypeObject *)Py_NewRef(dtype_type);
    torch_of.registry = Py_NewRef(registry);
    torch_of.current_device = Py_NewRef(current_device);
    Py_RETURN_NONE;
}

static PyObject *described(PyObject *module, PyObject *tensor)
{
    Key key = {.count = 0};
    void *address;
    int added = add_argument(&key, tensor, &address);
    if (added < 0)
        return NULL;
    PyObject *found = PyTuple_New(added ? key.count + 1 : 0);
    for (Py_ssize_t place = 0; found != NULL && added && place <= key.count; place++) {
        PyObject *number = place ? PyLong_FromLongLong(key.words[place - 1]) : PyLong_FromVoidPtr(address);
        if (number == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, place, number);
    }
    return found;
}

static PyObject *add(PyObject *module, PyObject *counter)
{
    if (count_call(counter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *hold(PyObject *module, PyObject *object)
{
    Py_INCREF(object);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"hold", hold, METH_O, "Count a reference to an object that nobody will release, or PyTorch."},
    {"add", add, METH_O, "Add 1 to the number of a counter."},
    {"configure", configure, METH_VARARGS,
     "configure(addresses, tensor, parameter, dtype, registry, current_device)\n\n"
     "Set the addresses of PyTorch's functions of a tensor's data, sizes, strides, dim, dtype, device type and device\n"
     "index, its types of tensors, parameters and dtypes, the module of registries, and the function that returns the\n"
     "current device."},
    {"described", described, METH_O,
     "Return the address of a tensor and the words of its key, or () for an argument that no key holds."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "ready_calls", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit_ready_calls(void)
{
    if (PyType_Ready(&table_type) < 0 || PyType_Ready(&kernel_type) < 0)
        return NULL;
    name_of_cdata = PyUnicode_InternFromString("_cdata");
    name_of_default = PyUnicode_InternFromString("default");
    name_of_table = PyUnicode_InternFromString("calls_in_c");
    if (name_of_cdata == NULL || name_of_default == NULL || name_of_table == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddObjectRef(module, "Table", (PyObject *)&table_type) < 0
        || PyModule_AddObjectRef(module, "Kernel", (PyObject *)&kernel_type) < 0)
        Py_CLEAR(module);
    return module;
}
