// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "../common/clock.h"
#include "probe_control.h"

#define WAIT_NS (200 * NS_PER_MS) /* the probe answers within 20 ms, unless it has to wait for a CPU */

int probe_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, error;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	error = errno;
	if (fd >= 0)
		close(fd);
	return -error;
}

int probe_send(int probe, bool on)
{
	const char *line = on ? "on\n" : "off\n";
	char late[PROBE_ANSWER_MAX];

	/* Discard late answers to earlier commands, so that no late answer counts as the answer to the new command. */
	while (recv(probe, late, sizeof(late), MSG_DONTWAIT) > 0)
		;
	return send(probe, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int probe_wait(int probe, char answer[PROBE_ANSWER_MAX])
{
	uint64_t until = clock_ns() + WAIT_NS;
	size_t used = 0;

	while (used < PROBE_ANSWER_MAX - 1) {
		uint64_t now = clock_ns();
		struct pollfd waiting = { .fd = probe, .events = POLLIN };
		ssize_t n;

		if (now >= until || !poll(&waiting, 1, (int)((until - now) / NS_PER_MS) + 1))
			return ETIMEDOUT;
		n = recv(probe, answer + used, PROBE_ANSWER_MAX - 1 - used, MSG_DONTWAIT);
		if (n <= 0)
			return n < 0 ? errno : EPIPE;
		used += (size_t)n;
		if (answer[used - 1] == '\n') {
			answer[used - 1] = '\0';
			return 0;
		}
	}
	return EMSGSIZE;
}
