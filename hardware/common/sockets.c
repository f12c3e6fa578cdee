// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sockets.h"

int copy_sockets(pid_t pid, take_socket *take, void *context)
{
	char path[64];
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	int denied = process < 0 ? errno : 0;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	if (!folder)
		denied = errno;
	while (folder && process >= 0 && (entry = readdir(folder))) {
		char name[PATH_MAX], target[16] = "";
		int socket;

		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (readlink(name, target, sizeof(target) - 1) < 0 || strncmp(target, "socket:", 7))
			continue;
		socket = (int)syscall(SYS_pidfd_getfd, process, atoi(entry->d_name), 0);
		if (socket >= 0)
			take(context, socket);
		else
			denied = errno;
	}
	if (folder)
		closedir(folder);
	if (process >= 0)
		close(process);
	return denied;
}

bool is_udp_port(int socket, unsigned port)
{
	struct sockaddr_in address = { 0 };
	socklen_t size = sizeof(address);
	int type = 0;

	if (getsockname(socket, (struct sockaddr *)&address, &size) || address.sin_family != AF_INET ||
	    ntohs(address.sin_port) != port)
		return false;
	size = sizeof(type);
	return !getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_DGRAM;
}

uint64_t socket_cookie(int socket)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size);
	return cookie;
}
