"""Loops that end at a branch on data: each is one function of what it begins with, or is followed.

The data of such a branch flows through the modules in this order:

1. `loop`: the branch, where it leads and the join of its sides give the loop, and the loop the registers that an
   iteration passes on.  One iteration is executed for variables in their place.
2. `register_loops`: a loop that only computes registers, and passes on no known number, is a function from the start.
   Its variables are distinguished by their places, so that the body is executed once.
3. `iterations`: any other loop is followed for each number of iterations, up to a bound.
4. `loop_systems`: beyond the bound a loop may still be a function.  Its body may also count, load, exchange values and
   pass barriers.  Its variables are distinguished by their values, so the body is executed several times.

The two functions differ in how a variable is named.  A name by place costs one execution, and is possible where threads
do not work together; two loops are equal if they use their registers in one order.  A name by value depends neither on
registers nor on threads, which loops whose threads work together need.
"""
