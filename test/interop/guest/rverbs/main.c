/* The loop and the list of commands. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"
#include "rverbs.h"

static const struct {
    const char *name;
    command *run;
} commands[] = {
    /* objects.c */
    { "open", cmd_open },
    { "query_device", cmd_query_device },
    { "query_port", cmd_query_port },
    { "query_gid", cmd_query_gid },
    { "pd", cmd_pd },
    { "dealloc_pd", cmd_dealloc_pd },
    { "channel", cmd_channel },
    { "cq", cmd_cq },
    { "destroy_cq", cmd_destroy_cq },
    { "srq", cmd_srq },
    { "modify_srq", cmd_modify_srq },
    { "query_srq", cmd_query_srq },
    { "destroy_srq", cmd_destroy_srq },
    { "ah", cmd_ah },
    { "destroy_ah", cmd_destroy_ah },
    { "mw", cmd_mw },
    { "dealloc_mw", cmd_dealloc_mw },
    { "async_event", cmd_async_event },
    /* memory.c */
    { "mr", cmd_mr },
    { "dereg_mr", cmd_dereg_mr },
    { "fill", cmd_fill },
    { "write", cmd_write },
    { "read", cmd_read },
    { "sha256", cmd_sha256 },
    /* qp.c */
    { "qp", cmd_qp },
    { "modify_qp", cmd_modify_qp },
    { "query_qp", cmd_query_qp },
    { "destroy_qp", cmd_destroy_qp },
    { "attach_mcast", cmd_attach_mcast },
    { "detach_mcast", cmd_detach_mcast },
    /* work.c */
    { "post_send", cmd_post_send },
    { "post_recv", cmd_post_recv },
    { "repeat", cmd_repeat },
    { "bind", cmd_bind },
    { "poll", cmd_poll },
    { "arm", cmd_arm },
    { "wait_event", cmd_wait_event },
};

static command *command_named(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, name))
            return commands[i].run;
    fail(0, "unknown command %s", name);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = 0;
        if (!setjmp(failed)) {
            const char *name = parse_request(line);
            command *run = command_named(name);
            if (run != cmd_open && !context)
                fail(0, "open comes first");
            run();
            check_all_keys_used();
        }
        send_reply();
    }
    return 0;
}
