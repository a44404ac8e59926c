/* An endpoint that answers every DynamoDB write at once and keeps nothing, as sink.py does, and takes little CPU for it.

   Prints its port. Each connection is answered by a thread of its own, until the process is ended. Answers carry the
   x-amz-crc32 of their bodies, as DynamoDB's do. */

#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STATEMENTS_AT_MOST = 25, ROOM = 1 << 15, FIRST_BYTES = 1 << 18 };

static const char CAPACITY[] = "{\"TableName\":\"T\",\"CapacityUnits\":25.0}";

typedef struct {
    char bytes[ROOM];
    size_t length;
} Answer;

static Answer of_batch, of_item, of_statements[STATEMENTS_AT_MOST + 1];

/* CRC-32 as zlib has it. */
static uint32_t checksum(const char *bytes, size_t length) {
    uint32_t crc = ~0u;
    for (size_t at = 0; at < length; at++) {
        crc ^= (unsigned char)bytes[at];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static void made(Answer *answer, const char *body) {
    size_t length = strlen(body);
    int written = snprintf(answer->bytes, ROOM,
                           "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nx-amz-crc32: %u\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                           checksum(body, length), length, body);
    answer->length = (size_t)written;
}

static void make_answers(void) {
    char body[ROOM];
    snprintf(body, ROOM, "{\"UnprocessedItems\":{},\"ConsumedCapacity\":[%s]}", CAPACITY);
    made(&of_batch, body);
    snprintf(body, ROOM, "{\"ConsumedCapacity\":%s}", CAPACITY);
    made(&of_item, body);
    for (int count = 0; count <= STATEMENTS_AT_MOST; count++) {
        int at = snprintf(body, ROOM, "{\"Responses\":[");
        for (int number = 0; number < count; number++)
            at += snprintf(body + at, ROOM - (size_t)at, "%s{\"TableName\":\"T\"}", number ? "," : "");
        snprintf(body + at, ROOM - (size_t)at, "],\"ConsumedCapacity\":[%s]}", CAPACITY);
        made(&of_statements[count], body);
    }
}

/* Behind the name of a header, or NULL; the head ends with an empty line. */
static const char *header(const char *head, const char *end, const char *name) {
    size_t length = strlen(name);
    for (const char *line = head; line + length < end; line++) {
        if (!strncasecmp(line, name, length)) return line + length;
        line = memchr(line, '\n', (size_t)(end - line));
        if (line == NULL) return NULL;
    }
    return NULL;
}

static int is_operation(const char *target, const char *end, const char *name) {
    const char *line_end = memchr(target, '\r', (size_t)(end - target));
    return line_end != NULL && memmem(target, (size_t)(line_end - target), name, strlen(name)) != NULL;
}

/* What is answered to a request. In a text of a value the quotation marks are escaped, so that none is counted. */
static const Answer *answer_of(const char *head, const char *body, size_t length) {
    static const char statement[] = "\"Statement\":";
    const char *target = header(head, body, "x-amz-target:");
    if (target == NULL) return &of_batch;
    if (is_operation(target, body, "BatchExecuteStatement")) {
        int count = 0;
        const char *at = body;
        while ((at = memmem(at, (size_t)(body + length - at), statement, sizeof statement - 1)) != NULL) {
            at += sizeof statement - 1;
            if (count < STATEMENTS_AT_MOST) count++;
        }
        return &of_statements[count];
    }
    return is_operation(target, body, ".PutItem") || is_operation(target, body, ".DeleteItem") ? &of_item : &of_batch;
}

static int sent(int connection, const Answer *answer) {
    for (size_t at = 0; at < answer->length;) {
        ssize_t written = send(connection, answer->bytes + at, answer->length - at, MSG_NOSIGNAL);
        if (written <= 0) return 0;
        at += (size_t)written;
    }
    return 1;
}

/* Answers requests of a connection, one after the other, until it is closed. */
static void *served(void *number) {
    int connection = (int)(intptr_t)number;
    size_t room = FIRST_BYTES, held = 0;
    char *buffer = malloc(room);
    while (buffer != NULL) {
        char *end = memmem(buffer, held, "\r\n\r\n", 4), *body = end == NULL ? NULL : end + 4;
        const char *length_text = body == NULL ? NULL : header(buffer, body, "content-length:");
        size_t length = length_text == NULL ? 0 : strtoul(length_text, NULL, 10);
        size_t whole = body == NULL ? held + 1 : (size_t)(body - buffer) + length;
        if (held < whole) {
            if (whole > room || held == room) {
                room = whole > 2 * room ? whole : 2 * room;
                if ((buffer = realloc(buffer, room)) == NULL) break;
            }
            ssize_t got = recv(connection, buffer + held, room - held, 0);
            if (got <= 0) break;
            held += (size_t)got;
            continue;
        }
        if (!sent(connection, answer_of(buffer, body, length))) break;
        memmove(buffer, buffer + whole, held -= whole);
    }
    free(buffer);
    close(connection);
    return NULL;
}

int main(void) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int server = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    make_answers();
    if (bind(server, (struct sockaddr *)&where, size) || listen(server, 256) ||
        getsockname(server, (struct sockaddr *)&where, &size)) {
        perror("sink");
        return 1;
    }
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int connection = accept(server, NULL, NULL);
        pthread_t thread;
        if (connection < 0) continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (pthread_create(&thread, NULL, served, (void *)(intptr_t)connection) == 0) pthread_detach(thread);
        else close(connection);
    }
}
