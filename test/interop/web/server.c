// A server of HTTP on sockets of POSIX, which librspreload turns into sockets of RDMA: it answers so many requests with a file, one connection for each.
//
//   server ADDRESS PORT FILE COUNT
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(that)                                 \
  do {                                              \
    if (!(that)) {                                  \
      fprintf(stderr, "line %d: ", __LINE__);       \
      perror(#that);                                \
      exit(1);                                      \
    }                                               \
  } while (0)

static void send_all(int socket, const char *bytes, size_t length) {
  while (length > 0) {
    const ssize_t n = send(socket, bytes, length, 0);
    CHECK(n > 0);
    bytes += n;
    length -= (size_t)n;
  }
}

static void answer(int socket, const char *body, size_t length) {
  char request[4096] = {0}, head[128];
  size_t got = 0;
  while (strstr(request, "\r\n\r\n") == NULL) {
    const ssize_t n = recv(socket, request + got, sizeof request - 1 - got, 0);
    CHECK(n > 0);
    got += (size_t)n;
  }
  CHECK(strncmp(request, "GET ", 4) == 0);
  snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", length);
  send_all(socket, head, strlen(head));
  send_all(socket, body, length);
  // The client has all of it before the connection ends.
  shutdown(socket, SHUT_WR);
  while (recv(socket, request, sizeof request, 0) > 0) {}
}

int main(int argc, char **argv) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  struct stat about;
  char *body;
  int file, listener;
  if (argc != 5) return 2;
  address.sin_port = htons((uint16_t)atoi(argv[2]));
  CHECK(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
  CHECK((file = open(argv[3], O_RDONLY)) >= 0 && fstat(file, &about) == 0);
  CHECK((body = malloc((size_t)about.st_size)) != NULL && read(file, body, (size_t)about.st_size) == about.st_size);
  CHECK((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
  CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
  for (int i = 0; i < atoi(argv[4]); i++) {
    const int socket = accept(listener, NULL, NULL);
    CHECK(socket >= 0);
    answer(socket, body, (size_t)about.st_size);
    close(socket);
  }
  puts("ok");
  return 0;
}
