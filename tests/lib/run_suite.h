/* How every unit test ends: runs its suite as Check's environment variables say; the exit status of main. */
#ifndef LEDGERMQ_TESTS_LIB_RUN_SUITE_H
#define LEDGERMQ_TESTS_LIB_RUN_SUITE_H

#include <check.h>

static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
