#include "proto/response_code.h"

#include <stddef.h>

const char *response_code_name(int code)
{
    switch (code) {
#define X(name, number)                                                                                      \
    case number:                                                                                             \
        return #name;
        RESPONSE_CODES(X)
#undef X
    default:
        return NULL;
    }
}
