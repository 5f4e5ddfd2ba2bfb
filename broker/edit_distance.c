#include "broker/edit_distance.h"

#include <ctype.h>
#include <limits.h>

unsigned edit_distance(struct slice a, const char *b)
{
    unsigned line[96];
    size_t b_size = strlen(b);
    if (b_size + 1 > sizeof line / sizeof line[0] || a.size > 95)
        return UINT_MAX;
    for (size_t j = 0; j <= b_size; j++)
        line[j] = (unsigned)j;
    for (size_t i = 1; i <= a.size; i++) {
        unsigned diagonal = line[0];
        line[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            unsigned replaced = diagonal + (tolower(a.data[i - 1]) != tolower((unsigned char)b[j - 1]));
            diagonal = line[j];
            unsigned best = line[j - 1] < line[j] ? line[j - 1] + 1 : line[j] + 1;
            line[j] = replaced < best ? replaced : best;
        }
    }
    return line[b_size];
}
