#include "broker/service/disk_level.h"

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "broker/broker.h"
#include "store/log_sink.h"

#define LOOK_MS 1000u

struct disk_level {
    struct broker *broker;
    uv_timer_t timer;
    bool refusing;
    char refusal[192];
};

int disk_level_percent(struct broker *broker)
{
    uint64_t free_bytes, total_bytes;

    if (broker->env.ops->space(&broker->env, broker->config.store_path_root_dir, &free_bytes, &total_bytes) != 0 || total_bytes == 0)
        return -1;
    uint64_t used = total_bytes - free_bytes;
    return (int)(used / total_bytes * 100 + (used % total_bytes * 100 + total_bytes - 1) / total_bytes);
}

static void look(struct disk_level *level)
{
    struct broker *broker = level->broker;
    int ratio = broker->config.disk_space_warning_level_ratio, percent = disk_level_percent(broker);
    bool refused = level->refusing;

    level->refusing = percent > ratio;
    snprintf(level->refusal, sizeof level->refusal, "the broker's disk is full: %d %% of it are used, more than diskSpaceWarningLevelRatio=%d; delete something or add room",
             percent, ratio);
    if (level->refusing && !refused)
        LOG_ERROR("%s: %s; sends are refused until then", broker->config.store_path_root_dir, level->refusal);
    else if (refused && !level->refusing)
        LOG_INFO("%s: %d %% of the disk are used: sends are taken again", broker->config.store_path_root_dir, percent);
    if (broker->log != NULL)
        dledger_commit_log_note_disk(broker->log, level->refusing);
}

static void on_timer(uv_timer_t *timer)
{
    look(timer->data);
    uv_timer_start(timer, on_timer, LOOK_MS, 0);
}

const char *disk_level_refusal(const struct disk_level *level)
{
    return level->refusing ? level->refusal : NULL;
}

const char *disk_level_name(const struct broker_config *config, int percent)
{
    return percent > config->disk_space_warning_level_ratio    ? "diskSpaceWarningLevelRatio"
           : percent > config->disk_space_clean_forcibly_ratio ? "diskSpaceCleanForciblyRatio"
           : percent > config->disk_max_used_space_ratio       ? "diskMaxUsedSpaceRatio"
                                                               : "ok";
}

struct disk_level *disk_level_new(struct broker *broker, struct error *error)
{
    struct disk_level *level = calloc(1, sizeof *level);

    if (level == NULL) {
        error_set(error, ERROR_NO_MEMORY, "level of the disk: out of memory");
        return NULL;
    }
    level->broker = broker;
    uv_timer_init(broker->loop, &level->timer);
    level->timer.data = level;
    uv_unref((uv_handle_t *)&level->timer);
    uv_timer_start(&level->timer, on_timer, 0, 0);
    return level;
}

void disk_level_close(struct disk_level *level)
{
    if (level != NULL && !uv_is_closing((uv_handle_t *)&level->timer))
        uv_close((uv_handle_t *)&level->timer, NULL);
}

void disk_level_free(struct disk_level *level)
{
    free(level);
}
