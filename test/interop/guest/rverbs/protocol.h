/* The loop's side of protocol.c. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <setjmp.h>

extern jmp_buf failed; /* fail() comes back here, with the error reply in place */
/* Splits the line in place and starts an {"ok":true reply. Returns the command's name. */
const char *parse_request(char *line);
/* A key that no one asked for is a mistake of the caller. */
void check_all_keys_used(void);
void send_reply(void);

#endif
