/* Heart-beats: any text gives an answer, and what is taken is written and read again alike. */
#include "proto/heartbeat_data.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heartbeat_data heartbeat;
    struct buffer first;
    struct buffer second;

    if (heartbeat_data_decode(&heartbeat, slice_of(data, size), NULL) != 0)
        return 0;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    heartbeat_data_encode(&heartbeat, &first);
    heartbeat_data_close(&heartbeat);
    /* What was written must be readable, and nothing may be lost on the way. */
    CHECK(heartbeat_data_decode(&heartbeat, buffer_slice(&first), NULL) == 0);
    heartbeat_data_encode(&heartbeat, &second);
    heartbeat_data_close(&heartbeat);
    CHECK(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    buffer_close(&first);
    buffer_close(&second);
    return 0;
}
