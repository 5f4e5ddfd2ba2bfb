/* Three transactions: one that commits, one that is rolled back, one that is not decided when the send
 * returns, so that the broker asks later (after transactionTimeOut, every transactionCheckInterval).
 *
 *     NAMESRV_ADDR=127.0.0.1:9876 transaction TOPIC [SECONDS to wait for the broker's question]
 */
#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ledgermq.h>

static atomic_int questions;

/* What the application's database would do; the argument says how it goes. */
static int execute(void *context, const struct ledgermq_message *message, const char *transaction_id, void *argument)
{
    const int *state = argument;
    (void)context;
    printf("executing %s for a message of %zu bytes\n", transaction_id, message->body_size);
    return *state;
}

/* What the application's database knows of a transaction that some process of the group began. */
static int check(void *context, const struct ledgermq_stored_message *message)
{
    (void)context;
    printf("the broker asks how %s ended: it was committed\n", message->message_id);
    questions++;
    return LEDGERMQ_TRANSACTION_COMMIT;
}

int main(int argc, char **argv)
{
    static const struct ledgermq_transaction_listener listener = {.execute = execute, .check = check};
    static const char *const names[] = {"undecided", "committed", "rolled back"};
    struct ledgermq_client *client;
    struct ledgermq_producer *producer;
    struct ledgermq_producer_options options;
    struct ledgermq_error error;
    if (argc < 2)
        errx(2, "usage: NAMESRV_ADDR=host:port transaction TOPIC [SECONDS]");
    int seconds = argc > 2 ? atoi(argv[2]) : 0;
    ledgermq_producer_options_init(&options);
    options.group = "example_transaction";
    options.transaction_listener = &listener;
    if (ledgermq_client_new(NULL, &client, &error) != LEDGERMQ_OK ||
        ledgermq_producer_new(client, &options, &producer, &error) != LEDGERMQ_OK)
        errx(1, "%s", error.message);
    for (int state = LEDGERMQ_TRANSACTION_UNKNOWN; state <= LEDGERMQ_TRANSACTION_ROLLBACK; state++) {
        struct ledgermq_message message = {
            .topic = argv[1], .body = names[state], .body_size = strlen(names[state]), .keys = names[state]};
        struct ledgermq_transaction_result result;
        if (ledgermq_send_transaction(producer, &message, &state, &result, &error) != LEDGERMQ_OK)
            errx(1, "%s", error.message);
        printf("%s: %s\n", names[result.state], result.settled ? "the broker knows" : "the broker will ask");
    }
    for (int i = 0; i < seconds * 10 && questions == 0; i++)
        usleep(100000);
    ledgermq_client_free(client);
    return seconds > 0 && questions == 0 ? 1 : 0;
}
