/*
 * A server of a Table in C, for one client: `server ADDRESS PORT < rows`. Stdin is two lines, the number of rows and the bytes of one, and
 * then the rows. The answer to a question for the table is that of docs/connect.md; all else is the client's READs.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTION = 3, ANSWER = 1, HEADER = 5, BYTES = 64 };

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned rows, row_size;
	char line[64];

	check(argc != 3, "arguments");
	check(!fgets(line, sizeof line, stdin) || sscanf(line, "%u", &rows) != 1, "rows");
	check(!fgets(line, sizeof line, stdin) || sscanf(line, "%u", &row_size) != 1, "row_size");
	size_t length = (size_t)rows * row_size;
	uint8_t *table = malloc(length);
	check(!table || fread(table, 1, length, stdin) != length, "table");

	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;
	struct rdma_cm_id *listener, *id;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	check(rdma_getaddrinfo(argv[1], argv[2], &hints, &info), "rdma_getaddrinfo");
	check(rdma_create_ep(&listener, info, NULL, &init), "rdma_create_ep");
	check(rdma_listen(listener, 1), "rdma_listen");
	check(rdma_get_request(listener, &id), "rdma_get_request");

	uint8_t in[BYTES], out[HEADER + 24] = { ANSWER };
	struct ibv_mr *messages = rdma_reg_msgs(id, in, sizeof in);
	struct ibv_mr *answers = rdma_reg_msgs(id, out, sizeof out);
	struct ibv_mr *region = rdma_reg_read(id, table, length);
	check(!messages || !answers || !region, "registration");
	check(rdma_post_recv(id, NULL, in, sizeof in, messages), "rdma_post_recv");
	struct rdma_conn_param parameters = { .responder_resources = 1, .rnr_retry_count = 7 };
	check(rdma_accept(id, &parameters), "rdma_accept");

	struct ibv_wc wc;
	check(rdma_get_recv_comp(id, &wc) < 1 || wc.status || wc.byte_len != HEADER || in[0] != QUESTION, "question");
	memcpy(out + 1, in + 1, 4);
	uint32_t numbers[4] = { htobe32(1u << 24), htobe32(rows), htobe32(row_size), htobe32(region->rkey) };
	uint64_t address = htobe64((uintptr_t)table);
	memcpy(out + HEADER, numbers, sizeof numbers);
	memcpy(out + HEADER + sizeof numbers, &address, sizeof address);
	check(rdma_post_send(id, NULL, out, sizeof out, answers, 0), "rdma_post_send");
	check(rdma_get_send_comp(id, &wc) < 1 || wc.status, "answer");

	struct rdma_cm_event *event;
	check(rdma_get_cm_event(id->channel, &event) || event->event != RDMA_CM_EVENT_DISCONNECTED, "end");
	puts("ok");
	return 0;
}
