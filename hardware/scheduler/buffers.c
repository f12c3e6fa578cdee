// SPDX-License-Identifier: MIT
/*
 * buffers sets the receive buffers of UDP sockets that belong to running programs.
 *
 * USAGE
 *   buffers PORT=BYTES... -- PID...   sets SO_RCVBUF of the UDP socket on each port to BYTES, and prints one line per port,
 *                                     in the order of the arguments: PORT EFFECTIVE
 *
 * HOW IT WORKS
 * buffers copies the sockets of the processes (pidfd_getfd) and calls setsockopt(SO_RCVBUFFORCE). Without this program,
 * a proxy can only use SO_RCVBUF, which net.core.rmem_max limits. Kamailio and OpenSIPS never make a buffer smaller
 * than net.core.rmem_default. The kernel doubles BYTES, and EFFECTIVE is the doubled value that the kernel reports.
 * Processes
 *   that share a socket share its buffer.
 *   SEE socket(7), net/core/sock.c: __sock_set_rcvbuf()
 *
 * buffers needs root, or CAP_NET_ADMIN and CAP_SYS_PTRACE, and Linux 5.6 or later. The exit code is 0 on success, 1 with one
 * line on stderr for an error, and 2 for wrong usage.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../common/arguments.h"
#include "../common/program.h"
#include "../common/sockets.h"

/* A port, the wanted buffer size of its socket in bytes, and the size that the kernel reports (0: no socket found). */
struct buffer {
	unsigned port;
	int wanted;
	int effective;
	int refused; /* errno value with which the kernel refused the size */
};

struct buffers {
	struct buffer *each;
	int n;
};

static void resize(void *context, int socket)
{
	struct buffers *buffers = context;

	for (struct buffer *b = buffers->each; b < buffers->each + buffers->n; b++) {
		socklen_t size = sizeof(b->effective);

		if (!is_udp_port(socket, b->port))
			continue;
		if (setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &b->wanted, sizeof(b->wanted)) ||
		    getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &b->effective, &size))
			b->refused = errno;
	}
	close(socket);
}

static bool parse(char *text, struct buffer *buffer)
{
	char *separator = strchr(text, '=');
	long long port, bytes;

	if (!separator)
		return false;
	*separator = 0;
	/* The kernel stores twice the size in an int. A size above INT_MAX / 2 would overflow. */
	if (!parse_whole(text, 1, 65535, &port) || !parse_whole(separator + 1, 1, INT_MAX / 2, &bytes))
		return false;
	*buffer = (struct buffer){ .port = (unsigned)port, .wanted = (int)bytes };
	return true;
}

int main(int argc, char **argv)
{
	struct buffers buffers = { .each = keep(calloc((size_t)argc, sizeof(*buffers.each))) };
	int denied = 0, i = 1;

	for (; i < argc && strcmp(argv[i], "--"); i++)
		if (!parse(argv[i], &buffers.each[buffers.n++]))
			break;
	if (i == 1 || i + 1 >= argc || strcmp(argv[i], "--")) {
		complain("usage: buffers PORT=BYTES... -- PID...");
		return EXIT_USAGE;
	}
	for (i++; i < argc; i++) {
		int error = copy_sockets((pid_t)strtol(argv[i], NULL, 10), resize, &buffers);

		denied = error ? error : denied;
	}
	for (const struct buffer *b = buffers.each; b < buffers.each + buffers.n; b++) {
		if (b->refused)
			return fail("the kernel refuses the size of a receive buffer", strerror(b->refused));
		if (!b->effective && denied)
			return fail("cannot take the sockets of a process", strerror(denied));
		if (!b->effective) {
			complain("none of the processes has a UDP socket on port %u", b->port);
			return EXIT_BAD;
		}
		printf("%u %d\n", b->port, b->effective);
	}
	free(buffers.each);
	return EXIT_GOOD;
}
