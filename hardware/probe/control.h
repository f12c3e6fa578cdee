/* SPDX-License-Identifier: MIT */
/*
 * A Unix socket for commands to a running program. Each command is one line, and the program answers with one line.
 *
 * A client may send several commands over one connection. The program executes one command at a time, even if several
 * clients send commands.
 */
#ifndef SIPSCHED_CONTROL_H
#define SIPSCHED_CONTROL_H
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_CLIENTS 8  /* largest number of connected clients; further clients wait */
#define CONTROL_LINE    64 /* longest command; a longer line ends the connection */
#define CONTROL_ANSWER  192
#define CONTROL_FDS     (1 + CONTROL_CLIENTS)

struct control_client {
	int fd; /* -1: this entry is free */
	size_t length;
	char line[CONTROL_LINE];
};

struct control {
	const char *path; /* path of the socket; NULL: no socket exists */
	int listener;
	struct control_client clients[CONTROL_CLIENTS];
};

/* A function that executes a command and writes the answer, without a line end, to CONTROL_ANSWER bytes at `answer`. */
typedef void (*control_action)(void *context, const char *command, char *answer);

/* Listen at `path` for connections from root. Do nothing if `path` is NULL. On failure, print one line, return false. */
bool open_control(struct control *control, const char *path);
/* Fill CONTROL_FDS entries of `fds` for poll(). Unused entries get the descriptor -1, which poll() ignores. */
void list_control(const struct control *control, struct pollfd *fds);
/* Execute the commands that have arrived. `fds` holds the results of poll() for the entries of list_control(). */
void serve_control(struct control *control, const struct pollfd *fds, control_action action, void *context);
/* Close the socket and remove its file. */
void close_control(struct control *control);
#endif
