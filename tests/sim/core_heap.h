/* Memory for the core of Raft whose small pieces stand where an address has zeros in bits 8 to 15, as any may: the core reads such bits of a union as a
 * flag, so what G7 keeps away would show itself in one of 256 cases only, and not with each run of the same seed.
 */
#ifndef LEDGERMQ_TESTS_SIM_CORE_HEAP_H
#define LEDGERMQ_TESTS_SIM_CORE_HEAP_H

/* For the whole process, once. */
void core_heap_begin(void);

#endif
