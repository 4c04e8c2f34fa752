/* The link between two guests, with a tap at each end and faults between the taps.
 *
 *   link A_HERE A_THERE B_HERE B_THERE      paths of the datagram sockets: ours, and the guest's (QEMU -netdev dgram)
 *
 * A frame from guest A passes tap A, then the faults of direction ab, then tap B. Only RoCE frames (UDP to port 4791) meet faults and are
 * captured; ARP, TCP and the rest pass. Incoming frames carry the kernel's receive time, outgoing ones the time of their send.
 *
 * Commands on standard input, one a line, each answered by a line "ok …":
 *   begin PREFIX SEED           starts a run: fresh faults, fresh captures
 *   fault DIR KIND CLASS …      DIR ab or ba; CLASS any, request, data, read, response, ack, nak, cm, rc (all but cm)
 *     loss C PERCENT              burst C PERCENT LENGTH       corrupt C PERCENT      mark C PERCENT (ECN CE)
 *     duplicate C PERCENT US      hold C PERCENT US            (the copy, or the frame, comes US later; others overtake)
 *     drop C N COUNT              damage C N COUNT             late C N COUNT US      (frames N … N + COUNT − 1 of the class)
 *     cut C N                     (frame N of the class and all after it, both ways, are lost)
 *     delay C US JITTER ORDER     (US ± JITTER, uniform; ORDER 1: first in, first out)
 *   cnp DIR US                  answers marked frames of DIR with a CNP, at most one in US
 *   pause SIDE N PRIORITY US    at frame N from SIDE: PFC frames stop that side's priority for US, then let it go on
 *   end                         waits for frames under way; writes PREFIX-a.pcap, PREFIX-b.pcap and PREFIX.log
 *
 * PREFIX.log has a JSON line for each frame: where it came in, and what became of it (truth.mjs reads it). */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { A, B };
#define MAX_FRAME 16384
#define MAX_RULES 32
#define RELEASE_US 3000 /* a PFC frame of 0xffff quanta is repeated after this */

static const char *const CLASSES[] = { "any", "request", "data", "read", "response", "ack", "nak", "cm", "rc" };
enum { ANY, REQUEST, DATA, READ, RESPONSE, ACK, NAK, CM, RC };

struct frame {
    uint32_t id;
    int from;
    const char *injected; /* kind, of frames made here */
    const char *lost;     /* why it did not pass */
    int marked;           /* ECN CE was set on its way */
    unsigned classes;
    int length;
    uint8_t *data;
};

/* A frame that a tap saw; copies of one frame are records of one id. */
struct record {
    int64_t ns;
    uint64_t order;
    int tap, came; /* came in at this tap, or left at it */
    int number;
    const char *how; /* passed, damaged, duplicate, late */
    struct frame *frame;
    uint8_t *data; /* the frame's, or a changed copy */
};

struct rule {
    char kind[16];
    int class;
    double percent;
    int64_t a, b;
    int64_t seen, run; /* frames of the class so far; left of a burst */
};

struct due {
    int64_t at;
    uint64_t order;
    struct record record;
};

static int sockets[2];
static struct sockaddr_un there[2];
static struct rule rules[2][MAX_RULES];
static int rule_count[2];
static struct frame **frames;
static struct record *records;
static struct due *queue;
static size_t frame_count, record_count, queue_count;
static uint64_t order;
static uint64_t state; /* of the random numbers */
static int running, is_cut;
static char prefix[512];
static int64_t last_due[2], cnp_interval[2], last_cnp[2];
static uint32_t last_qp[2]; /* destination queue pair last seen in each direction */
static struct { int64_t at_frame, until, refresh; int priority; int64_t us; int64_t seen; } pauses[2];
static struct { uint8_t *data; int length; } *held[2];
static size_t held_count[2];

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* splitmix64: [0, 1) */
static double chance(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) / (double)(1ull << 53);
}

static void *grown(void *array, size_t count, size_t size)
{
    if (count & (count - 1))
        return array; /* room up to the next power of two */
    array = realloc(array, (count ? count * 2 : 1) * size);
    if (!array)
        abort();
    return array;
}

static uint8_t *copy_of(const uint8_t *data, int length)
{
    uint8_t *copy = malloc(length);
    if (!copy)
        abort();
    return memcpy(copy, data, length);
}

/* Offset of the BTH; 0 if the frame is not RoCE v2. */
static int bth_of(const uint8_t *f, int length)
{
    int udp = 0;
    if (length >= 54 && f[12] == 0x08 && f[13] == 0x00 && f[23] == 17)
        udp = 14 + (f[14] & 15) * 4;
    else if (length >= 74 && f[12] == 0x86 && f[13] == 0xdd && f[20] == 17)
        udp = 54;
    return udp && length >= udp + 24 && f[udp + 2] == 4791 >> 8 && f[udp + 3] == (4791 & 255) ? udp + 8 : 0;
}

static unsigned classes_of(const uint8_t *bth)
{
    unsigned set = 1u << ANY;
    if (!bth[5] && !bth[6] && bth[7] == 1)
        return set | 1u << CM;
    int op = bth[0] & 31;
    set |= 1u << RC;
    if (op >= 13 && op <= 18 && op != 17)
        return set | 1u << RESPONSE;
    if (op == 17)
        return set | ((bth[12] & 0x60) == 0x60 || (bth[12] & 0x60) == 0x20 ? 1u << NAK : 1u << ACK);
    set |= 1u << REQUEST;
    return set | (op == 12 ? 1u << READ : op < 12 || op > 20 ? 1u << DATA : 0);
}

/* --- captures and the way to the guests */

static void transmit(struct record *r)
{
    if (sendto(sockets[r->tap], r->data, r->frame->length, 0, (struct sockaddr *)&there[r->tap], sizeof there[0]) < 0 &&
        errno != ECONNREFUSED && errno != ENOENT)
        perror("link: sendto");
}

static void record_at(struct record r)
{
    records = grown(records, record_count, sizeof *records);
    r.order = order++;
    records[record_count++] = r;
}

static void pass_at(int64_t at, struct record r)
{
    queue = grown(queue, queue_count, sizeof *queue);
    queue[queue_count++] = (struct due) { at, order++, r };
}

/* Sends what is due; returns ns until the next, or −1. */
static int64_t run_queue(void)
{
    for (;;) {
        size_t first = 0;
        for (size_t i = 1; i < queue_count; i++)
            if (queue[i].at < queue[first].at || (queue[i].at == queue[first].at && queue[i].order < queue[first].order))
                first = i;
        if (!queue_count)
            return -1;
        int64_t t = now();
        if (queue[first].at > t)
            return queue[first].at - t;
        struct record r = queue[first].record;
        queue[first] = queue[--queue_count];
        r.ns = t;
        record_at(r);
        transmit(&r);
    }
}

/* --- frames of our own */

static uint32_t crc32_of(uint32_t crc, const uint8_t *p, int n)
{
    while (n--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

/* Writes the ICRC (IBTA vol 1 §A17.3.3): traffic class, TTL, checksums and BTH byte 4 count as ones. */
static void seal(uint8_t *f, int length, int bth)
{
    uint8_t masked[MAX_FRAME];
    memcpy(masked, f, length);
    uint8_t *ip = masked + 14;
    if (bth == 14 + 20 + 8)
        ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
    else
        ip[0] |= 0x0f, ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
    masked[bth - 2] = masked[bth - 1] = masked[bth + 4] = 0xff;
    uint32_t crc = crc32_of(0xffffffff, (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    crc = ~crc32_of(crc, ip, length - 14 - 4);
    for (int i = 0; i < 4; i++)
        f[length - 4 + i] = crc >> 8 * i;
}

static void sum_ip4(uint8_t *ip)
{
    ip[10] = ip[11] = 0;
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~(sum + (sum >> 16));
    ip[10] = sum >> 8;
    ip[11] = sum;
}

static struct frame *make_frame(const uint8_t *data, int length, int from, const char *injected)
{
    struct frame *f = calloc(1, sizeof *f);
    frames = grown(frames, frame_count, sizeof *frames);
    frames[frame_count++] = f;
    *f = (struct frame) { .id = frame_count, .from = from, .injected = injected, .length = length };
    f->data = copy_of(data, length);
    return f;
}

static void meet_faults(struct frame *f, int64_t at);

/* The congestion notification that the receiver of `marked` would send. */
static void send_cnp(const struct frame *marked, int64_t at)
{
    int from = !marked->from;
    if (!cnp_interval[marked->from] || at - last_cnp[marked->from] < cnp_interval[marked->from])
        return;
    last_cnp[marked->from] = at;
    int bth = bth_of(marked->data, marked->length), ip4 = bth == 42, length = bth + 12 + 16 + 4;
    uint8_t f[128] = { 0 };
    memcpy(f, marked->data, bth);
    memcpy(f, marked->data + 6, 6);
    memcpy(f + 6, marked->data, 6);
    int address = ip4 ? 26 : 22, size = ip4 ? 4 : 16;
    memcpy(f + address, marked->data + address + size, size);
    memcpy(f + address + size, marked->data + address, size);
    int ip_length = length - 14, udp_length = length - bth + 8;
    if (ip4) {
        f[15] = 0xc2; /* DSCP 48, ECT(0), as ConnectX sends it */
        f[16] = ip_length >> 8, f[17] = ip_length;
        f[18] = f[19] = 0;
        sum_ip4(f + 14);
    } else {
        f[14] = 0x6c, f[15] = 0x20;
        f[18] = udp_length >> 8, f[19] = udp_length;
    }
    f[bth - 8] = f[bth - 7] = 0;
    f[bth - 4] = udp_length >> 8, f[bth - 3] = udp_length;
    f[bth - 2] = f[bth - 1] = 0;
    uint8_t *b = f + bth;
    memset(b, 0, 12);
    b[0] = 0x81;
    b[1] = 0x40; /* MigReq */
    b[2] = b[3] = 0xff;
    b[4] = 0x40; /* BECN */
    b[5] = last_qp[from] >> 16, b[6] = last_qp[from] >> 8, b[7] = last_qp[from];
    seal(f, length, bth);
    struct frame *made = make_frame(f, length, from, "cnp");
    made->classes = 1u << ANY;
    record_at((struct record) { .ns = at, .tap = from, .came = 1, .frame = made, .data = made->data });
    meet_faults(made, at);
}

/* A PFC frame (IEEE 802.1Q §36.1) to the guest at `side`. */
static void send_pfc(int side, int priority, int quanta, int64_t at)
{
    uint8_t f[60] = { 0x01, 0x80, 0xc2, 0, 0, 0x01, 0x52, 0x54, 0, 0xfe, 0, 0x01, 0x88, 0x08, 0x01, 0x01 };
    f[17] = 1 << priority;
    f[18 + 2 * priority] = quanta >> 8;
    f[19 + 2 * priority] = quanta;
    struct frame *made = make_frame(f, sizeof f, !side, "pfc");
    pass_at(at, (struct record) { .tap = side, .frame = made, .data = made->data, .how = "passed" });
}

/* --- faults */

static int hits(struct rule *r, const char *kind)
{
    return !strcmp(r->kind, kind);
}

static int in_run(const struct rule *r)
{
    return r->seen >= r->a && r->seen < r->a + r->b;
}

static void meet_faults(struct frame *f, int64_t at)
{
    int dir = f->from, to = !dir, damaged = 0, marked = 0, fifo = 0, had_delay = 0;
    int64_t wait = 0, late = 0, second = -1;
    const char *lost = is_cut ? "cut" : NULL;
    for (int i = 0; i < rule_count[dir]; i++) {
        struct rule *r = &rules[dir][i];
        if (!(f->classes & 1u << r->class))
            continue;
        r->seen++;
        double dice = chance() * 100; /* always drawn, so that one rule does not shift another's numbers */
        if (hits(r, "loss") && dice < r->percent)
            lost = lost ? lost : "loss";
        else if (hits(r, "burst")) {
            if (!r->run && dice < r->percent)
                r->run = r->a;
            if (r->run)
                r->run--, lost = lost ? lost : "burst";
        } else if (hits(r, "drop") && in_run(r))
            lost = lost ? lost : "drop";
        else if (hits(r, "cut") && r->seen >= r->a)
            is_cut = 1, lost = lost ? lost : "cut";
        else if ((hits(r, "corrupt") && dice < r->percent) || (hits(r, "damage") && in_run(r)))
            damaged = 1;
        else if (hits(r, "mark") && dice < r->percent)
            marked = 1;
        else if (hits(r, "duplicate") && dice < r->percent)
            second = r->a;
        else if (hits(r, "hold") && dice < r->percent)
            late = r->a;
        else if (hits(r, "late") && in_run(r))
            late = r->run; /* its time stands there */
        else if (hits(r, "delay"))
            wait = r->a + (int64_t)((chance() * 2 - 1) * (double)r->b), fifo = (int)r->percent, had_delay = 1;
    }
    if (lost) {
        f->lost = lost;
        return;
    }
    uint8_t *data = f->data;
    if (damaged || marked)
        data = copy_of(f->data, f->length);
    f->marked = marked;
    if (marked) {
        if (bth_of(data, f->length) == 42) {
            data[15] |= 3;
            sum_ip4(data + 14);
        } else
            data[15] |= 0x30;
    }
    if (damaged) { /* one bit behind the BTH's opcode: still a RoCE packet, with a wrong ICRC */
        int bth = bth_of(data, f->length), bytes = f->length - bth - 12;
        int bit = (int)(chance() * bytes * 8);
        data[bth + 12 + bit / 8] ^= 1 << (bit & 7);
    }
    int64_t due = at + wait * 1000;
    if (had_delay && fifo) {
        if (due < last_due[dir])
            due = last_due[dir];
        last_due[dir] = due;
    }
    struct record r = { .tap = to, .frame = f, .data = data, .how = damaged ? "damaged" : late ? "late" : "passed" };
    pass_at(due + late * 1000, r);
    if (second >= 0) {
        r.how = "duplicate";
        pass_at(due + (late + second) * 1000, r);
    }
    if (marked)
        send_cnp(f, at + 1);
}

static void come_in(int from, const uint8_t *data, int length, int64_t at)
{
    int bth = bth_of(data, length);
    struct frame *f = make_frame(data, length, from, NULL);
    f->classes = classes_of(data + bth);
    if (!(f->classes & 1u << CM))
        last_qp[from] = data[bth + 5] << 16 | data[bth + 6] << 8 | data[bth + 7];
    record_at((struct record) { .ns = at, .tap = from, .came = 1, .frame = f, .data = f->data });
    meet_faults(f, at);
    if (pauses[from].at_frame && ++pauses[from].seen == pauses[from].at_frame) {
        pauses[from].until = at + pauses[from].us * 1000;
        pauses[from].refresh = at;
    }
}

/* PFC: repeats it while it stops a side, then lets the side's frames go on. Returns ns until it is due again, or −1. */
static int64_t run_pause(int side)
{
    int64_t t = now();
    if (!pauses[side].until)
        return -1;
    if (t >= pauses[side].until) {
        send_pfc(side, pauses[side].priority, 0, t);
        pauses[side].until = 0;
        for (size_t i = 0; i < held_count[side]; i++) {
            come_in(side, held[side][i].data, held[side][i].length, now());
            free(held[side][i].data);
        }
        held_count[side] = 0;
        return -1;
    }
    if (t >= pauses[side].refresh) {
        send_pfc(side, pauses[side].priority, 0xffff, t);
        pauses[side].refresh = t + RELEASE_US * 1000;
    }
    int64_t next = pauses[side].refresh < pauses[side].until ? pauses[side].refresh : pauses[side].until;
    return next - t;
}

static void receive(int from)
{
    static uint8_t data[MAX_FRAME];
    union { char bytes[CMSG_SPACE(sizeof(struct timespec))]; struct cmsghdr align; } control;
    struct iovec iov = { data, sizeof data };
    for (;;) {
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(sockets[from], &m, MSG_DONTWAIT);
        if (n <= 0)
            return;
        int64_t at = now();
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            at = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
        }
        if (!running || !bth_of(data, n)) {
            sendto(sockets[!from], data, n, 0, (struct sockaddr *)&there[!from], sizeof there[0]);
        } else if (pauses[from].until) {
            held[from] = grown(held[from], held_count[from], sizeof *held[from]);
            held[from][held_count[from]].data = copy_of(data, n);
            held[from][held_count[from]++].length = n;
        } else
            come_in(from, data, n, at);
    }
}

/* --- commands */

static int by_time(const void *x, const void *y)
{
    const struct record *a = x, *b = y;
    return a->ns != b->ns ? (a->ns < b->ns ? -1 : 1) : a->order < b->order ? -1 : 1;
}

static void write_captures(void)
{
    qsort(records, record_count, sizeof *records, by_time);
    int counts[2] = { 0, 0 };
    for (int tap = A; tap <= B; tap++) {
        char path[600];
        snprintf(path, sizeof path, "%s-%c.pcap", prefix, "ab"[tap]);
        FILE *out = fopen(path, "wb");
        if (!out)
            exit((perror(path), 1));
        const uint32_t header[] = { 0xa1b23c4d, 4 << 16 | 2, 0, 0, 262144, 1 };
        fwrite(header, sizeof header, 1, out);
        for (size_t i = 0; i < record_count; i++) {
            struct record *r = &records[i];
            if (r->tap != tap)
                continue;
            r->number = ++counts[tap];
            const uint32_t h[] = { r->ns / 1000000000, r->ns % 1000000000, r->frame->length, r->frame->length };
            fwrite(h, sizeof h, 1, out);
            fwrite(r->data, r->frame->length, 1, out);
        }
        fclose(out);
    }
    char path[600];
    snprintf(path, sizeof path, "%s.log", prefix);
    FILE *out = fopen(path, "w");
    for (size_t i = 0; i < frame_count; i++) {
        struct frame *f = frames[i];
        fprintf(out, "{\"id\":%u,\"from\":\"%c\",\"injected\":%s%s%s,\"marked\":%s,\"lost\":%s%s%s", f->id, "ab"[f->from],
                f->injected ? "\"" : "", f->injected ? f->injected : "null", f->injected ? "\"" : "", f->marked ? "true" : "false", f->lost ? "\"" : "",
                f->lost ? f->lost : "null", f->lost ? "\"" : "");
        const char *comma = "";
        for (int came = 1; came >= 0; came--) {
            fprintf(out, came ? ",\"in\":[" : "],\"out\":[");
            comma = "";
            for (size_t k = 0; k < record_count; k++)
                if (records[k].frame == f && records[k].came == came) {
                    fprintf(out, "%s{\"frame\":%d,\"ns\":\"%" PRId64 "\",\"how\":\"%s\"}", comma, records[k].number, records[k].ns,
                            records[k].how ? records[k].how : "");
                    comma = ",";
                }
        }
        fprintf(out, "]}\n");
    }
    fclose(out);
    printf("ok %d %d\n", counts[A], counts[B]);
}

static void forget(void)
{
    for (size_t i = 0; i < record_count; i++)
        if (!records[i].came && records[i].data != records[i].frame->data && records[i].how && strcmp(records[i].how, "duplicate"))
            free(records[i].data);
    for (size_t i = 0; i < frame_count; i++)
        free(frames[i]->data), free(frames[i]);
    frame_count = record_count = queue_count = 0;
    rule_count[A] = rule_count[B] = is_cut = 0;
    memset(pauses, 0, sizeof pauses);
    memset(last_due, 0, sizeof last_due);
    memset(last_cnp, 0, sizeof last_cnp);
    memset(cnp_interval, 0, sizeof cnp_interval);
}

static int add_rule(int dir, const char *kind, const char *class, double x, double y, double z)
{
    if (rule_count[dir] == MAX_RULES)
        return -1;
    struct rule r = { .class = -1 };
    snprintf(r.kind, sizeof r.kind, "%s", kind);
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (!strcmp(class, CLASSES[i]))
            r.class = i;
    if (r.class < 0)
        return -1;
    if (!strcmp(kind, "drop") || !strcmp(kind, "damage") || !strcmp(kind, "late") || !strcmp(kind, "cut"))
        r.a = x, r.b = y, r.run = z;
    else if (!strcmp(kind, "delay"))
        r.a = x, r.b = y, r.percent = z;
    else
        r.percent = x, r.a = y;
    rules[dir][rule_count[dir]++] = r;
    return 0;
}

static void obey(const char *line)
{
    char kind[16], class[16], dir[4], side;
    double x = 0, y = 0, z = 0;
    long n, priority, us;
    if (sscanf(line, "begin %511s %" SCNu64, prefix, &state) == 2) {
        forget();
        running = 1;
        printf("ok\n");
    } else if (sscanf(line, "fault %3s %15s %15s %lf %lf %lf", dir, kind, class, &x, &y, &z) >= 4)
        printf("%s\n", add_rule(dir[0] == 'b', kind, class, x, y, z) ? "expected a class of frames and room for a rule" : "ok");
    else if (sscanf(line, "cnp %3s %lf", dir, &x) == 2) {
        cnp_interval[dir[0] == 'b'] = x * 1000;
        printf("ok\n");
    } else if (sscanf(line, "pause %c %ld %ld %ld", &side, &n, &priority, &us) == 4) {
        pauses[side == 'b'].at_frame = n;
        pauses[side == 'b'].priority = priority;
        pauses[side == 'b'].us = us;
        printf("ok\n");
    } else if (!strncmp(line, "end", 3)) {
        while (run_queue() >= 0)
            usleep(100);
        running = 0;
        write_captures();
    } else
        printf("unknown command: %s\n", line);
    fflush(stdout);
}

static int open_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, SOCK_DGRAM, 0), one = 1, size = 4 << 20;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path);
    if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof address))
        exit((perror(path), 1));
    setsockopt(s, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return s;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: link A_HERE A_THERE B_HERE B_THERE\n"), 2;
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 9);
    for (int i = A; i <= B; i++) {
        sockets[i] = open_socket(argv[1 + 2 * i]);
        there[i].sun_family = AF_UNIX;
        snprintf(there[i].sun_path, sizeof there[i].sun_path, "%s", argv[2 + 2 * i]);
    }
    char line[1024];
    size_t filled = 0;
    for (;;) {
        int64_t wait = run_queue();
        for (int side = A; side <= B; side++) {
            int64_t w = run_pause(side);
            if (w >= 0 && (wait < 0 || w < wait))
                wait = w;
        }
        struct timespec t = { wait / 1000000000, wait % 1000000000 };
        struct pollfd p[] = { { sockets[A], POLLIN, 0 }, { sockets[B], POLLIN, 0 }, { 0, POLLIN, 0 } };
        ppoll(p, 3, wait < 0 ? NULL : &t, NULL);
        if (p[0].revents)
            receive(A);
        if (p[1].revents)
            receive(B);
        if (p[2].revents) {
            ssize_t n = read(0, line + filled, sizeof line - 1 - filled);
            if (n <= 0)
                return 0;
            filled += n;
            line[filled] = 0;
            for (char *end; (end = strchr(line, '\n'));) {
                *end = 0;
                obey(line);
                filled -= end + 1 - line;
                memmove(line, end + 1, filled + 1);
            }
        }
    }
}
