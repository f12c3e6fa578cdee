// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "control.h"
#include "system.h"

/* Return whether a killed program left this socket file behind: no process accepts connections to the socket. */
static bool is_left_behind(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
		       errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return refused;
}

static bool bind_for_root(int fd, const struct sockaddr_un *address)
{
	mode_t mask = umask(0177);
	int result = bind(fd, (const struct sockaddr *)address, sizeof(*address));

	if (result < 0 && errno == EADDRINUSE && is_left_behind(address) && !unlink(address->sun_path))
		result = bind(fd, (const struct sockaddr *)address, sizeof(*address));
	umask(mask);
	return !result;
}

bool open_control(struct control *control, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	control->listener = -1;
	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		control->clients[i].fd = -1;
	if (!path)
		return true;
	if (strlen(path) >= sizeof(address.sun_path)) {
		complain("--control: a socket's path has at most %zu characters: %s",
			 sizeof(address.sun_path) - 1, path);
		return false;
	}
	strcpy(address.sun_path, path);
	control->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (control->listener >= 0 && bind_for_root(control->listener, &address)) {
		control->path = path;
		if (!listen(control->listener, CONTROL_CLIENTS))
			return true;
	}
	complain("cannot listen at %s: %s", path, strerror(errno));
	return false;
}

void list_control(const struct control *control, struct pollfd *fds)
{
	bool full = true;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		fds[1 + i] = (struct pollfd){ .fd = control->clients[i].fd, .events = POLLIN };
		if (control->clients[i].fd < 0)
			full = false;
	}
	fds[0] = (struct pollfd){ .fd = full ? -1 : control->listener, .events = POLLIN };
}

static void accept_client(struct control *control)
{
	int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		/* The client has already disconnected. */
		return;
	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		if (control->clients[i].fd < 0) {
			control->clients[i].fd = fd;
			control->clients[i].length = 0;
			return;
		}
	}
	close(fd);
}

static void end_client(struct control_client *client)
{
	close(client->fd);
	client->fd = -1;
}

/*
 * Send an answer. Return false if the client does not read answers, because the program must not wait for the client.
 */
static bool answer_client(struct control_client *client, const char *answer)
{
	char line[CONTROL_ANSWER + 1];
	int length = snprintf(line, sizeof(line), "%s\n", answer);

	return send(client->fd, line, (size_t)length, MSG_NOSIGNAL) == length;
}

/* Execute and answer the command of each complete line. Return false if the caller must disconnect the client. */
static bool do_lines(struct control_client *client, control_action action, void *context)
{
	char answer[CONTROL_ANSWER];
	char *end;

	while ((end = memchr(client->line, '\n', client->length))) {
		size_t used = (size_t)(end - client->line) + 1;

		*end = 0;
		action(context, client->line, answer);
		if (!answer_client(client, answer))
			return false;
		client->length -= used;
		memmove(client->line, client->line + used, client->length);
	}
	if (client->length < CONTROL_LINE)
		return true;
	answer_client(client, "error: the line is too long");
	return false;
}

static void read_client(struct control_client *client, control_action action, void *context)
{
	ssize_t got = recv(client->fd, client->line + client->length, CONTROL_LINE - client->length, 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0) {
		client->length += (size_t)got;
		if (do_lines(client, action, context))
			return;
	}
	end_client(client);
}

void serve_control(struct control *control, const struct pollfd *fds, control_action action, void *context)
{
	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		if (control->clients[i].fd >= 0 && fds[1 + i].revents)
			read_client(&control->clients[i], action, context);
	}
	if (fds[0].revents)
		accept_client(control);
}

void close_control(struct control *control)
{
	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		if (control->clients[i].fd >= 0)
			end_client(&control->clients[i]);
	}
	if (control->path)
		unlink(control->path);
	if (control->listener >= 0)
		close(control->listener);
}
