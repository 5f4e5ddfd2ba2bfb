#include "proto/request_code.h"

#include <stddef.h>

const char *request_code_name(int code)
{
    switch (code) {
#define X(name, number)                                                                                      \
    case number:                                                                                             \
        return #name;
        REQUEST_CODES(X)
#undef X
    default:
        return NULL;
    }
}
