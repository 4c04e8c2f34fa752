// A program of librpma (librpma-dev): "server ADDRESS" exposes memory, of which "client ADDRESS" writes, reads and flushes parts. Each
// prints "ok".
#include <librpma.h>

#include "check.h"

#define PORT "7204"
#define BYTES 65536
#define DONE 1

static struct rpma_peer *peer_at(const char *address, enum rpma_util_ibv_context_type type) {
  struct ibv_context *context;
  struct rpma_peer *peer;
  CHECK(rpma_utils_get_ibv_context(address, type, &context) == 0);
  CHECK(rpma_peer_new(context, &peer) == 0);
  return peer;
}

static void expect(struct rpma_conn *connection, enum rpma_conn_event wanted) {
  enum rpma_conn_event event;
  CHECK(rpma_conn_next_event(connection, &event) == 0);
  CHECK(event == wanted);
}

static void end(struct rpma_conn *connection, struct rpma_mr_local *mr, struct rpma_peer *peer) {
  CHECK(rpma_conn_delete(&connection) == 0);
  CHECK(rpma_mr_dereg(&mr) == 0);
  CHECK(rpma_peer_delete(&peer) == 0);
  puts("ok");
}

static void serve(const char *address, uint8_t *memory) {
  struct rpma_peer *peer = peer_at(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
  struct rpma_mr_local *mr;
  struct rpma_ep *endpoint;
  struct rpma_conn_req *request;
  struct rpma_conn *connection;
  uint8_t descriptor[256];
  size_t size;
  struct rpma_conn_private_data data = {.ptr = descriptor};
  const int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
  for (size_t i = 0; i < BYTES; i++) memory[i] = (uint8_t)(i * 7);
  CHECK(rpma_mr_reg(peer, memory, BYTES, usage, &mr) == 0);
  CHECK(rpma_mr_get_descriptor_size(mr, &size) == 0 && size <= sizeof descriptor);
  CHECK(rpma_mr_get_descriptor(mr, descriptor) == 0);
  data.len = (uint8_t)size;
  CHECK(rpma_ep_listen(peer, address, PORT, &endpoint) == 0);
  CHECK(rpma_ep_next_conn_req(endpoint, NULL, &request) == 0);
  CHECK(rpma_conn_req_connect(&request, &data, &connection) == 0);
  expect(connection, RPMA_CONN_ESTABLISHED);
  expect(connection, RPMA_CONN_CLOSED);
  // It was flushed before the client left.
  for (size_t i = 0; i < BYTES / 2; i++) CHECK(memory[i] == (uint8_t)(i * 7 + 1));
  CHECK(rpma_conn_disconnect(connection) == 0);
  CHECK(rpma_ep_shutdown(&endpoint) == 0);
  end(connection, mr, peer);
}

static void complete(struct rpma_cq *queue, const void *context) {
  struct ibv_wc wc;
  int found, error;
  do {
    CHECK(rpma_cq_wait(queue) == 0);
    error = rpma_cq_get_wc(queue, 1, &wc, &found);
  } while (error == RPMA_E_NO_COMPLETION);
  CHECK(error == 0 && found == 1);
  CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(uintptr_t)context);
}

static void use(const char *address, uint8_t *memory) {
  struct rpma_peer *peer = peer_at(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
  struct rpma_mr_local *mr;
  struct rpma_mr_remote *remote;
  struct rpma_conn_req *request;
  struct rpma_conn *connection;
  struct rpma_conn_private_data data;
  struct rpma_cq *queue;
  size_t size;
  CHECK(rpma_mr_reg(peer, memory, BYTES, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC, &mr) == 0);
  CHECK(rpma_conn_req_new(peer, address, PORT, NULL, &request) == 0);
  CHECK(rpma_conn_req_connect(&request, NULL, &connection) == 0);
  expect(connection, RPMA_CONN_ESTABLISHED);
  CHECK(rpma_conn_get_private_data(connection, &data) == 0);
  CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote) == 0);
  CHECK(rpma_mr_remote_get_size(remote, &size) == 0 && size == BYTES);
  CHECK(rpma_conn_get_cq(connection, &queue) == 0);
  CHECK(rpma_read(connection, mr, 0, remote, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, &size) == 0);
  complete(queue, &size);
  for (size_t i = 0; i < BYTES; i++) CHECK(memory[i] == (uint8_t)(i * 7));
  for (size_t i = 0; i < BYTES / 2; i++) memory[i]++;
  CHECK(rpma_write(connection, remote, 0, mr, 0, BYTES / 2, RPMA_F_COMPLETION_ON_ERROR, NULL) == 0);
  CHECK(rpma_flush(connection, remote, 0, BYTES / 2, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, &data) == 0);
  complete(queue, &data);
  CHECK(rpma_conn_disconnect(connection) == 0);
  expect(connection, RPMA_CONN_CLOSED);
  CHECK(rpma_mr_remote_delete(&remote) == 0);
  end(connection, mr, peer);
}

int main(int count, char **words) {
  uint8_t *memory = aligned_alloc(4096, BYTES);
  CHECK(count == 3 && memory != NULL);
  if (strcmp(words[1], "server") == 0) serve(words[2], memory);
  else use(words[2], memory);
  return 0;
}
