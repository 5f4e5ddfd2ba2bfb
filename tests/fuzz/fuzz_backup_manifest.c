/* Lines with a checksum that fits: what is read lies in the text, and written again it is the same. */
#include "proto/backup_manifest.h"

#include "proto/error.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct backup_manifest manifest, again;
    struct backup_file file;
    struct buffer text, copy;
    uint32_t version;

    CHECK(backup_manifest_read(slice_of(data, size), &manifest, &version) != 0 || size > 16);
    buffer_init(&text, 0);
    buffer_init(&copy, 0);
    buffer_append(&text, data, size);
    backup_manifest_end(&text);
    int rv = backup_manifest_read(buffer_slice(&text), &manifest, &version);
    CHECK(rv == 0 || rv == ERROR_DAMAGED || (rv == ERROR_VERSION && version != BACKUP_VERSION));
    if (rv == 0) {
        check_inside(manifest.group, text.data, text.size);
        check_inside(manifest.members, text.data, text.size);
        CHECK(backup_manifest_segment_bytes(&manifest, manifest.first_position) > 0);
        backup_manifest_begin(&copy, &manifest);
        while (backup_manifest_next_file(&manifest, &file)) {
            check_inside(file.name, text.data, text.size);
            char *name = slice_to_text(file.name);
            CHECK(name != NULL);
            backup_manifest_file(&copy, name, file.size, file.crc);
            free(name);
        }
        backup_manifest_end(&copy);
        CHECK(backup_manifest_read(buffer_slice(&copy), &again, &version) == 0);
        CHECK(again.end_position == manifest.end_position && again.term == manifest.term && slice_equal(again.members, manifest.members));
    }
    buffer_close(&text);
    buffer_close(&copy);
    return 0;
}
