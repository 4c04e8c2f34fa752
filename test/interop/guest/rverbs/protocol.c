/* Requests (key=value) and replies (JSON). */
#define _GNU_SOURCE /* strerrorname_np */
#include "protocol.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rverbs.h"

jmp_buf failed;

static struct {
    const char *key, *value;
    bool used;
} pairs[64];
static int pair_count;

static char *reply;
static size_t reply_length, reply_capacity;

static void append(const char *bytes, size_t length)
{
    if (reply_length + length + 1 > reply_capacity) {
        reply_capacity = 2 * (reply_length + length + 1);
        reply = realloc(reply, reply_capacity);
        if (!reply)
            abort();
    }
    memcpy(reply + reply_length, bytes, length);
    reply_length += length;
    reply[reply_length] = 0;
}

static void append_text(const char *string)
{
    append(string, strlen(string));
}

const char *parse_request(char *line)
{
    reply_length = 0;
    append_text("{\"ok\":true");
    pair_count = 0;
    char *rest = line, *name = strsep(&rest, " "), *word;
    while ((word = strsep(&rest, " "))) {
        if (!*word)
            continue;
        char *equals = strchr(word, '=');
        if (!equals || pair_count == sizeof pairs / sizeof *pairs)
            fail(0, "not a key=value: %.40s", word);
        *equals = 0;
        pairs[pair_count].key = word;
        pairs[pair_count].value = equals + 1;
        pairs[pair_count++].used = false;
    }
    return name;
}

void check_all_keys_used(void)
{
    for (int i = 0; i < pair_count; i++)
        if (!pairs[i].used)
            fail(0, "the command does not know the key %s", pairs[i].key);
}

void send_reply(void)
{
    append_text("}\n");
    fwrite(reply, 1, reply_length, stdout);
    fflush(stdout);
}

void fail(int error, const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    reply_length = 0;
    append_text("{\"ok\":false");
    put_text("error", message);
    put_number("errno", error);
    put_text("errnoName", error ? strerrorname_np(error) : "");
    longjmp(failed, 1);
}

static const char *value(const char *key)
{
    for (int i = 0; i < pair_count; i++)
        if (!strcmp(pairs[i].key, key)) {
            pairs[i].used = true;
            return pairs[i].value;
        }
    return NULL;
}

bool has(const char *key)
{
    return value(key) != NULL;
}

const char *text(const char *key, const char *fallback)
{
    const char *found = value(key);
    return found ? found : fallback;
}

const char *required_text(const char *key)
{
    const char *found = value(key);
    if (!found)
        fail(EINVAL, "%s is missing", key);
    return found;
}

uint64_t number(const char *key, uint64_t fallback)
{
    return has(key) ? required_number(key) : fallback;
}

uint64_t required_number(const char *key)
{
    const char *string = required_text(key);
    char *end;
    /* negative numbers are offsets into a guard: two's complement is what the caller casts back */
    uint64_t parsed = strtoull(string, &end, 0);
    if (end == string || *end)
        fail(EINVAL, "%s=%s is not a number", key, string);
    return parsed;
}

void required_bytes(const char *key, uint8_t *bytes, size_t length)
{
    const char *hex = required_text(key);
    if (strlen(hex) != 2 * length || strspn(hex, "0123456789abcdefABCDEF") != 2 * length)
        fail(EINVAL, "%s is not %zu bytes in hex", key, length);
    for (size_t i = 0; i < length; i++) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        bytes[i] = strtoul(digits, NULL, 16);
    }
}

static void put_key(const char *key)
{
    char last = reply[reply_length - 1];
    if (last != '{' && last != '[')
        append_text(",");
    if (key) {
        append_text("\"");
        append_text(key);
        append_text("\":");
    }
}

void put_number(const char *key, int64_t number)
{
    char string[32];
    put_key(key);
    append(string, snprintf(string, sizeof string, "%lld", (long long)number));
}

void put_hex(const char *key, uint64_t number)
{
    char string[32];
    put_key(key);
    append(string, snprintf(string, sizeof string, "\"0x%llx\"", (unsigned long long)number));
}

void put_text(const char *key, const char *string)
{
    put_key(key);
    append_text("\"");
    for (; *string; string++) {
        if (*string == '"' || *string == '\\')
            append_text("\\");
        append(*string < ' ' ? " " : string, 1);
    }
    append_text("\"");
}

void put_bytes(const char *key, const uint8_t *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    put_key(key);
    append_text("\"");
    for (size_t i = 0; i < length; i++)
        append((char[]){ digits[bytes[i] >> 4], digits[bytes[i] & 15] }, 2);
    append_text("\"");
}

void put_boolean(const char *key, bool is)
{
    put_key(key);
    append_text(is ? "true" : "false");
}

void open_list(const char *key)
{
    put_key(key);
    append_text("[");
}

void close_list(void)
{
    append_text("]");
}

void open_object(const char *key)
{
    put_key(key);
    append_text("{");
}

void close_object(void)
{
    append_text("}");
}
