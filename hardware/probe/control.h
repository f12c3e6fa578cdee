/* SPDX-License-Identifier: MIT */
/*
 * A unix socket for commands while the probe runs: lines, each answered by one.
 *
 * A client may send any number of them over one connection; commands of several clients are done one by one.
 */
#ifndef SIPSCHED_CONTROL_H
#define SIPSCHED_CONTROL_H
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_CLIENTS 8  /* at a time; others wait for their turn */
#define CONTROL_LINE    64 /* a line that is longer ends the connection */
#define CONTROL_ANSWER  192
#define CONTROL_FDS     (1 + CONTROL_CLIENTS)

struct control_client {
	int fd; /* -1: free */
	size_t length;
	char line[CONTROL_LINE];
};

struct control {
	const char *path; /* NULL: no socket is wanted */
	int listener;
	struct control_client clients[CONTROL_CLIENTS];
};

/* Do the command; the answer, without its end of line, goes into `answer` of CONTROL_ANSWER bytes. */
typedef void (*control_action)(void *context, const char *command, char *answer);

/* Listen at `path`, NULL for nowhere; only root may connect. False: a line on stderr says why. */
bool open_control(struct control *control, const char *path);
/* What to wait for: CONTROL_FDS of them, unused ones with fd -1. */
void list_control(const struct control *control, struct pollfd *fds);
/* Do what has come, as poll() says of the same list. */
void serve_control(struct control *control, const struct pollfd *fds, control_action action, void *context);
/* Remove the socket. */
void close_control(struct control *control);
#endif
