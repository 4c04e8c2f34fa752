// A program of UCX (libucx-dev) whose endpoint is made by address, by rdma_cm: "server ADDRESS" gets two tagged messages of "client
// ADDRESS", an eager one and a large one. Each prints "ok".
#include <arpa/inet.h>
#include <netinet/in.h>
#include <ucp/api/ucp.h>

#include "check.h"

#define PORT 7305
#define LARGE (4 << 20)

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static int closed;

static void on_error(void *none, ucp_ep_h ep, ucs_status_t status) {
  (void)none, (void)ep, (void)status;
  closed = 1;
}

static void on_request(ucp_conn_request_h request, void *none) {
  const ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .conn_request = request,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_error},
  };
  (void)none;
  CHECK(ucp_ep_create(worker, &params, &endpoint) == UCS_OK);
}

static void finish(ucs_status_ptr_t request) {
  ucs_status_t status = UCS_OK;
  if (UCS_PTR_IS_PTR(request)) {
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
  } else if (request != NULL) status = UCS_PTR_STATUS(request);
  if (status != UCS_OK) puts(ucs_status_string(status));
  CHECK(status == UCS_OK);
}

static const ucp_request_param_t plain = {0};

static void serve(const ucs_sock_addr_t *at, uint8_t *bytes) {
  const ucp_listener_params_t params = {
      .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
      .sockaddr = *at,
      .conn_handler = {.cb = on_request},
  };
  ucp_listener_h listener;
  CHECK(ucp_listener_create(worker, &params, &listener) == UCS_OK);
  while (endpoint == NULL) ucp_worker_progress(worker);
  finish(ucp_tag_recv_nbx(worker, bytes, 100, 1, UINT64_MAX, &plain));
  for (int i = 0; i < 100; i++) CHECK(bytes[i] == (uint8_t)(i * 3));
  finish(ucp_tag_recv_nbx(worker, bytes, LARGE, 2, UINT64_MAX, &plain));
  for (int i = 0; i < LARGE; i++) CHECK(bytes[i] == (uint8_t)(i * 5));
  while (!closed) ucp_worker_progress(worker);
  ucp_listener_destroy(listener);
}

static void call(const ucs_sock_addr_t *to, uint8_t *bytes) {
  const ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
      .sockaddr = *to,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_error},
  };
  CHECK(ucp_ep_create(worker, &params, &endpoint) == UCS_OK);
  for (int i = 0; i < 100; i++) bytes[i] = (uint8_t)(i * 3);
  finish(ucp_tag_send_nbx(endpoint, bytes, 100, 1, &plain));
  for (int i = 0; i < LARGE; i++) bytes[i] = (uint8_t)(i * 5);
  finish(ucp_tag_send_nbx(endpoint, bytes, LARGE, 2, &plain));
  finish(ucp_ep_close_nbx(endpoint, &plain));
}

int main(int count, char **words) {
  const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  const ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  const ucs_sock_addr_t at = {.addr = (struct sockaddr *)&address, .addrlen = sizeof address};
  uint8_t *bytes = malloc(LARGE);
  ucp_context_h context;
  CHECK(count == 3 && bytes != NULL && inet_pton(AF_INET, words[2], &address.sin_addr) == 1);
  CHECK(ucp_init(&params, NULL, &context) == UCS_OK);
  CHECK(ucp_worker_create(context, &single, &worker) == UCS_OK);
  if (strcmp(words[1], "server") == 0) serve(&at, bytes);
  else call(&at, bytes);
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  puts("ok");
  return 0;
}
