/* Frames: whatever the header, slices stay inside, and what was read is written and read again alike, in both forms.
 * Even first byte: a header that gets a frame around it; odd: a frame as it is. */
#include "proto/remoting_command.h"

#include "tests/fuzz/fuzz.h"

static void check_command(const struct remoting_command *command, const uint8_t *frame, size_t size)
{
    check_inside(command->remark, frame, size);
    check_inside(command->body, frame, size);
    CHECK(command->ext_count <= REMOTING_EXT_FIELDS_MAX);
    for (uint32_t i = 0; i < command->ext_count; i++) {
        check_inside(command->ext[i].name, frame, size);
        check_inside(command->ext[i].value, frame, size);
        CHECK(command->ext[i].name.data != NULL && command->ext[i].value.data != NULL);
    }
}

static void write_and_read(const struct remoting_command *command, uint8_t type)
{
    static struct remoting_command again;
    struct remoting_writer writer;
    struct buffer out;
    uint32_t count = 0;
    char *remark = command->remark.data == NULL ? NULL : slice_to_text(command->remark);

    buffer_init(&out, 0);
    remoting_writer_begin_response(&writer, &out, type, command->code, command->opaque, remark);
    for (uint32_t i = 0; i < command->ext_count; i++) {
        /* The writer's names are our own: plain text. */
        char name[16];
        snprintf(name, sizeof name, "k%u", i);
        remoting_writer_ext(&writer, name, command->ext[i].value);
        count += type == REMOTING_JSON || command->ext[i].value.size > 0;
    }
    remoting_writer_body(&writer);
    buffer_append_slice(&out, command->body);
    remoting_writer_end(&writer, 0);
    CHECK(!out.failed);
    CHECK(remoting_frame_size(buffer_slice(&out)) == (int64_t)out.size);
    CHECK(remoting_command_decode(out.data, out.size, &again) == 0);
    CHECK(again.code == (type == REMOTING_JSON ? command->code : (int16_t)command->code));
    CHECK(again.opaque == command->opaque && again.flag == REMOTING_FLAG_RESPONSE && again.version == REMOTING_VERSION);
    CHECK(again.ext_count == count);
    CHECK(slice_equal(again.body, command->body));
    CHECK(slice_equal(again.remark, slice_of_text(remark)));
    for (uint32_t i = 0; i < command->ext_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%u", i);
        CHECK(slice_equal(remoting_ext(&again, name), command->ext[i].value));
    }
    free(remark);
    buffer_close(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct remoting_command command;
    size_t frame_size = size - 1;
    uint8_t *frame;

    if (size == 0)
        return 0;
    if (data[0] & 1) {
        frame = malloc(frame_size + 1); /* malloc(0) may be NULL */
        CHECK(frame != NULL);
        memcpy(frame, data + 1, frame_size);
        int64_t told = remoting_frame_size(slice_of(frame, frame_size));
        CHECK(told == -1 || told == 0 || (told >= 8 && told <= REMOTING_FRAME_MAX));
    } else {
        frame = frame_around(data + 1, size - 1, &frame_size);
    }
    if (remoting_command_decode(frame, frame_size, &command) == 0) {
        check_command(&command, frame, frame_size);
        write_and_read(&command, REMOTING_JSON);
        write_and_read(&command, REMOTING_BINARY);
    }
    free(frame);
    return 0;
}
