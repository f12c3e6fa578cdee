/* SPDX-License-Identifier: MIT */
/*
 * A unix socket for commands to a running program. A command is a line, and the program answers each command with one line.
 *
 * A client may send any number of commands over one connection. Commands of several clients are performed one after the other.
 */
#ifndef SIPSCHED_CONTROL_H
#define SIPSCHED_CONTROL_H
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_CLIENTS 8  /* at the same time; further clients wait */
#define CONTROL_LINE    64 /* a longer line ends the connection */
#define CONTROL_ANSWER  192
#define CONTROL_FDS     (1 + CONTROL_CLIENTS)

struct control_client {
	int fd; /* -1: this entry is free */
	size_t length;
	char line[CONTROL_LINE];
};

struct control {
	const char *path; /* NULL: there is no socket */
	int listener;
	struct control_client clients[CONTROL_CLIENTS];
};

/* Perform a command. `answer` has CONTROL_ANSWER bytes and gets the answer without a line end. */
typedef void (*control_action)(void *context, const char *command, char *answer);

/* Listen at `path` for connections of root, unless `path` is NULL. On failure, print a line and return false. */
bool open_control(struct control *control, const char *path);
/* Fill CONTROL_FDS entries for poll(). Unused entries have the descriptor -1. */
void list_control(const struct control *control, struct pollfd *fds);
/* Perform the commands that have arrived, according to poll()'s result for the same entries. */
void serve_control(struct control *control, const struct pollfd *fds, control_action action, void *context);
/* Close and remove the socket. */
void close_control(struct control *control);
#endif
