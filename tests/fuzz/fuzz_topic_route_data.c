/* Routes: any text gives an answer, and what is taken is written and read again alike. */
#include "proto/topic_route_data.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct topic_route_data route;
    struct buffer first;
    struct buffer second;

    if (topic_route_data_decode(&route, slice_of(data, size), NULL) != 0)
        return 0;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    topic_route_data_encode(&route, size % 2 == 0, &first);
    topic_route_data_close(&route);
    /* What was written must be readable, and nothing may be lost on the way. */
    CHECK(topic_route_data_decode(&route, buffer_slice(&first), NULL) == 0);
    topic_route_data_encode(&route, size % 2 == 0, &second);
    topic_route_data_close(&route);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    buffer_close(&first);
    buffer_close(&second);
    return 0;
}
