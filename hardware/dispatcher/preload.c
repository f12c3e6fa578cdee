// SPDX-License-Identifier: MIT
/*
 * libsipshard.so lets several sockets share one UDP port. The sockets may belong to one program or to several programs.
 *
 *  SIPSHARD_PORT=<port> SIPSHARD_SOCKETS=<n> LD_PRELOAD=./libsipshard.so kamailio ...
 *
 * When the program binds a UDP socket to a port from <port> to <port> + <n> - 1, the library sets SO_REUSEPORT and binds
 * the socket to <port>. Programs such as Kamailio need this library because they use one port per socket and do not set
 * SO_REUSEPORT. The library supports IPv4 only.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

typedef int bind_call(int, const struct sockaddr *, socklen_t);

static unsigned long number(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address, socklen_t size)
{
	bind_call *next = (bind_call *)dlsym(RTLD_NEXT, "bind");
	unsigned long first = number("SIPSHARD_PORT"), count = number("SIPSHARD_SOCKETS"), port;
	struct sockaddr_in shared;
	socklen_t type_size;
	int type = 0, on = 1;

	if (!next) {
		errno = ENOSYS;
		return -1;
	}
	type_size = sizeof(type);
	if (!address || size < sizeof(shared) || address->sa_family != AF_INET ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_DGRAM)
		return next(fd, address, size);
	shared = *(const struct sockaddr_in *)address;
	port = ntohs(shared.sin_port);
	if (port < first || port >= first + count)
		return next(fd, address, size);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)))
		return -1;
	shared.sin_port = htons((uint16_t)first);
	return next(fd, (const struct sockaddr *)&shared, sizeof(shared));
}
