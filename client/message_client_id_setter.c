#include "client/message_client_id_setter.h"

#include <time.h>

static int64_t month_start(int64_t now_ms, int months_later)
{
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    local.tm_mon += months_later;
    local.tm_mday = 1;
    local.tm_hour = local.tm_min = local.tm_sec = 0;
    local.tm_isdst = -1;
    return (int64_t)mktime(&local) * 1000;
}

void message_client_id_setter_init(struct message_client_id_setter *setter, const uint8_t *address,
                                   size_t address_size, int pid, uint32_t instance)
{
    *setter = (struct message_client_id_setter){.fixed_size = address_size + 6};
    memcpy(setter->fixed, address, address_size);
    store_u16(setter->fixed + address_size, (uint16_t)pid);
    store_u32(setter->fixed + address_size + 2, instance);
}

void message_client_id_setter_make(struct message_client_id_setter *setter, int64_t now_ms,
                                   char out[MESSAGE_ID_TEXT_MAX])
{
    static const char hex[] = "0123456789ABCDEF";
    uint8_t bytes[sizeof setter->fixed + 6];
    if (now_ms >= setter->month_end_ms) {
        /* Two threads may do this at once; both compute the same. */
        setter->month_start_ms = month_start(now_ms, 0);
        setter->month_end_ms = month_start(now_ms, 1);
    }
    int64_t since = now_ms - setter->month_start_ms;
    size_t size = setter->fixed_size;
    memcpy(bytes, setter->fixed, size);
    store_u32(bytes + size, since > 0 ? (uint32_t)since : 0); /* a clock that was set back */
    store_u16(bytes + size + 4, (uint16_t)atomic_fetch_add(&setter->counter, 1));
    size += 6;
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = hex[bytes[i] >> 4];
        out[2 * i + 1] = hex[bytes[i] & 15];
    }
    out[2 * size] = '\0';
}

int64_t message_client_id_time_ms(const char *id, int64_t now_ms)
{
    size_t size = strlen(id);
    if (size != 32 && size != 56)
        return 0;
    uint32_t since = 0;
    for (const char *at = id + size - 12; at < id + size - 4; at++) {
        uint32_t digit = *at >= '0' && *at <= '9'   ? (uint32_t)(*at - '0')
                         : *at >= 'A' && *at <= 'F' ? (uint32_t)(*at - 'A') + 10
                                                    : 16;
        if (digit == 16)
            return 0;
        since = since << 4 | digit;
    }
    int64_t made = month_start(now_ms, 0) + since;
    return made <= now_ms ? made : month_start(now_ms, -1) + since;
}
