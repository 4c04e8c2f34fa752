/* execd: runs commands in the guest for the tests. One TCP connection is one command.
 *
 * Both ways the stream is frames: u8 type, u32 length (big-endian), bytes.
 *   to the daemon    'c' command, run by sh -c (first, once)   'i' stdin; empty: end of file   's' signal: u8 number
 *   from the daemon  'o' stdout   'e' stderr   'x' exit: u32 status, 128 + signal when a signal ended it
 * When the connection closes, the command's process group is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_FRAME (16u << 20)

static int read_all(int fd, void *buffer, size_t length)
{
    for (char *at = buffer; length;) {
        ssize_t n = read(fd, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        length -= n;
    }
    return 0;
}

static int write_all(int fd, const void *buffer, size_t length)
{
    for (const char *at = buffer; length;) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        length -= n;
    }
    return 0;
}

static int send_frame(int fd, char type, const void *data, uint32_t length)
{
    unsigned char header[5] = { type, length >> 24, length >> 16, length >> 8, length };
    return write_all(fd, header, sizeof header) || write_all(fd, data, length);
}

/* Reads one frame into a malloc'ed buffer with a NUL after it. */
static char *receive_frame(int fd, char *type, uint32_t *length)
{
    unsigned char header[5];
    if (read_all(fd, header, sizeof header))
        return NULL;
    *type = header[0];
    *length = (uint32_t)header[1] << 24 | header[2] << 16 | header[3] << 8 | header[4];
    char *data = *length <= MAX_FRAME ? malloc(*length + 1) : NULL;
    if (!data || read_all(fd, data, *length)) {
        free(data);
        return NULL;
    }
    data[*length] = 0;
    return data;
}

struct command {
    pid_t pid;
    int in, out, err;       /* our ends of its pipes; -1 once closed */
    char *pending;          /* stdin not yet taken by the command */
    uint32_t pending_at, pending_length;
    int end_of_input;
};

static void start(struct command *cmd, const char *text, const sigset_t *old_mask)
{
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        _exit(1);
    cmd->pid = fork();
    if (cmd->pid == 0) {
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, old_mask, NULL);
        signal(SIGPIPE, SIG_DFL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        _exit(127);
    }
    setpgid(cmd->pid, cmd->pid);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    cmd->in = in[1];
    cmd->out = out[0];
    cmd->err = err[0];
    fcntl(cmd->in, F_SETFL, O_NONBLOCK);
}

static void close_input(struct command *cmd)
{
    if (cmd->in >= 0)
        close(cmd->in);
    cmd->in = -1;
    free(cmd->pending);
    cmd->pending = NULL;
}

/* Hands pending stdin over; what does not fit waits for the next POLLOUT. */
static void feed(struct command *cmd)
{
    ssize_t n = write(cmd->in, cmd->pending + cmd->pending_at, cmd->pending_length - cmd->pending_at);
    if (n < 0 && errno != EAGAIN)
        close_input(cmd);
    else if (n > 0 && (cmd->pending_at += n) == cmd->pending_length) {
        free(cmd->pending);
        cmd->pending = NULL;
    }
}

/* Copies what the pipe has to the client. Returns -1 when the client is gone. */
static int forward(int client, char type, int *fd)
{
    char buffer[65536];
    ssize_t n = read(*fd, buffer, sizeof buffer);
    if (n > 0)
        return send_frame(client, type, buffer, n);
    close(*fd);
    *fd = -1;
    return 0;
}

static int take_frame(int client, struct command *cmd)
{
    char type;
    uint32_t length;
    char *data = receive_frame(client, &type, &length);
    if (!data)
        return -1;
    if (type == 'i' && length && cmd->in >= 0) {
        cmd->pending = data;
        cmd->pending_at = 0;
        cmd->pending_length = length;
        return 0;
    }
    if (type == 'i' && !length)
        close_input(cmd);
    if (type == 's' && length == 1)
        kill(-cmd->pid, data[0]);
    free(data);
    return 0;
}

static void serve(int client)
{
    sigset_t child_mask, old_mask;
    sigemptyset(&child_mask);
    sigaddset(&child_mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_mask, &old_mask);
    int child_fd = signalfd(-1, &child_mask, SFD_CLOEXEC);

    char type;
    uint32_t length;
    char *text = receive_frame(client, &type, &length);
    if (!text || type != 'c')
        return;
    struct command cmd = { .in = -1 };
    start(&cmd, text, &old_mask);

    int status = 0, alive = 1;
    while (alive || cmd.out >= 0 || cmd.err >= 0) {
        struct pollfd p[] = {
            { .fd = cmd.out, .events = POLLIN },
            { .fd = cmd.err, .events = POLLIN },
            { .fd = cmd.pending ? cmd.in : -1, .events = POLLOUT },
            { .fd = cmd.pending ? -1 : client, .events = POLLIN }, /* one frame of stdin at a time */
            { .fd = alive ? child_fd : -1, .events = POLLIN },
        };
        /* A background child may hold the pipes after the command ended: 200 ms of silence, then leave. */
        int ready = poll(p, 5, alive ? -1 : 200);
        if (!ready)
            break;
        if (p[0].revents && forward(client, 'o', &cmd.out))
            goto gone;
        if (p[1].revents && forward(client, 'e', &cmd.err))
            goto gone;
        if (p[2].revents)
            feed(&cmd);
        if (p[3].revents && take_frame(client, &cmd))
            goto gone;
        if (p[4].revents) {
            struct signalfd_siginfo info;
            if (read(child_fd, &info, sizeof info) < 0)
                break;
            alive = waitpid(cmd.pid, &status, WNOHANG) != cmd.pid;
        }
    }
    uint32_t code = htonl(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    send_frame(client, 'x', &code, sizeof code);
    return;
gone:
    kill(-cmd.pid, SIGTERM);
    usleep(200000);
    kill(-cmd.pid, SIGKILL);
}

int main(int argc, char **argv)
{
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 2000) };
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 64)) {
        perror("execd");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_DFL); /* init's shell starts background programs with these two ignored */
    signal(SIGQUIT, SIG_DFL);
    signal(SIGCHLD, SIG_IGN); /* the kernel reaps the serving processes */
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (fork() == 0) {
            close(listener);
            signal(SIGCHLD, SIG_DFL);
            serve(client);
            _exit(0);
        }
        close(client);
    }
}
