/* Chains of steps over k on a CPU: truncating fused sums of a matrix unit, and fused multiply-adds of fp32.
 *
 * The operations on each element, and their order, are those of `native_steps.fused_step` and of fma.rn.fp32 in Python.
 * Every operation of a fused sum is exact, so that the compiler may contract them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LOWEST (-400)   /* see `native_steps` */
#define ABSENT (-12000) /* see `exact_values` */

static double of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double power(int64_t exponent)
{
    return of_bits((uint64_t)(exponent + 1023) << 52);
}

static int exponent_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (int)((bits >> 52) & 0x7FF) - 1023;
}

/* A number cut toward zero; the sign of a zero has no effect on a sum that is +0 where it is zero. */
static double cut(double value)
{
    return fabs(value) < 4503599627370496.0 ? (double)(int64_t)value : value;
}

typedef struct {
    int products, fraction_bits, mantissa_bits, to_nearest, least_exponent, zero_exponent;
    int smallest_exponent, largest_exponent; /* of the result's format */
} Rule;

static double fused_step(const Rule *rule, const double *left, const int16_t *left_exponents, const double *right,
                         const int16_t *right_exponents, double accumulator)
{
    int top = exponent_of(accumulator), exponent;
    double scale, total, limit;
    if (top < rule->smallest_exponent)
        top = rule->smallest_exponent;
    if (accumulator == 0)
        top = rule->zero_exponent;
    if (!isfinite(accumulator))
        top = ABSENT;
    for (int k = 0; k < rule->products; k++) {
        exponent = left_exponents[k] + right_exponents[k];
        top = exponent > top ? exponent : top;
    }
    top = top > rule->least_exponent ? top : rule->least_exponent;
    scale = power(rule->fraction_bits - top);
    total = cut(accumulator * scale);
    for (int k = 0; k < rule->products; k++)
        total += cut(left[k] * right[k] * scale);
    total *= power(top - rule->fraction_bits);
    exponent = exponent_of(total);
    if (exponent < rule->smallest_exponent)
        exponent = rule->smallest_exponent;
    scale = power(rule->mantissa_bits - exponent);
    total = (rule->to_nearest ? rint(total * scale) : cut(total * scale)) * power(exponent - rule->mantissa_bits);
    limit = power(rule->largest_exponent + 1);
    if (total == 0)
        return 0.0;
    return fabs(total) >= limit ? copysign(INFINITY, total) : total;
}

static PyObject *fused_sums(PyObject *module, PyObject *arguments)
{
    Py_buffer left, left_exponents, right, right_exponents, accumulators;
    Py_ssize_t batch, m, n, k;
    Rule rule;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*w*(nnnn)(iiiiiiii)", &left, &left_exponents, &right, &right_exponents,
                          &accumulators, &batch, &m, &n, &k, &rule.products, &rule.fraction_bits, &rule.mantissa_bits,
                          &rule.to_nearest, &rule.least_exponent, &rule.zero_exponent, &rule.smallest_exponent,
                          &rule.largest_exponent))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    double *out = accumulators.buf;
    for (Py_ssize_t b = 0; b < batch; b++)
        for (Py_ssize_t i = 0; i < m; i++)
            for (Py_ssize_t j = 0; j < n; j++) {
                Py_ssize_t row = (b * m + i) * k, column = (b * n + j) * k;
                double total = *out;
                for (Py_ssize_t low = 0; low < k; low += rule.products)
                    total = fused_step(&rule, (double *)left.buf + row + low,
                                       (int16_t *)left_exponents.buf + row + low, (double *)right.buf + column + low,
                                       (int16_t *)right_exponents.buf + column + low, total);
                *out++ = total;
            }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&left);
    PyBuffer_Release(&left_exponents);
    PyBuffer_Release(&right);
    PyBuffer_Release(&right_exponents);
    PyBuffer_Release(&accumulators);
    Py_RETURN_NONE;
}

static PyObject *multiply_adds(PyObject *module, PyObject *arguments)
{
    Py_buffer left, right, accumulators;
    Py_ssize_t batch, m, n, k;
    if (!PyArg_ParseTuple(arguments, "y*y*w*(nnnn)", &left, &right, &accumulators, &batch, &m, &n, &k))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    float *out = accumulators.buf;
    for (Py_ssize_t b = 0; b < batch; b++)
        for (Py_ssize_t i = 0; i < m; i++)
            for (Py_ssize_t j = 0; j < n; j++) {
                const float *one = (float *)left.buf + (b * m + i) * k, *other = (float *)right.buf + (b * n + j) * k;
                float total = *out;
                for (Py_ssize_t p = 0; p < k; p++)
                    total = fmaf(one[p], other[p], total);
                *out++ = total;
            }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&left);
    PyBuffer_Release(&right);
    PyBuffer_Release(&accumulators);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"fused_sums", fused_sums, METH_VARARGS,
     "fused_sums(left, left_exponents, right, right_exponents, accumulators, (batch, m, n, k), rule)\n\n"
     "Add the products of left (batch, m, k) and right (batch, n, k) to accumulators (batch, m, n), in place."},
    {"multiply_adds", multiply_adds, METH_VARARGS,
     "multiply_adds(left, right, accumulators, (batch, m, n, k))\n\n"
     "Add the products of left (batch, m, k) and right (batch, n, k), of fp32, to accumulators, in place."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "chains", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit_chains(void)
{
    return PyModule_Create(&definition);
}
