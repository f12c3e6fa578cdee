/* SPDX-License-Identifier: MIT */
/* Functions that find the UDP sockets of other processes. They need root or CAP_SYS_PTRACE, and Linux 5.6. */
#ifndef SIPSCHED_SOCKETS_H
#define SIPSCHED_SOCKETS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A function that receives a copy of another process's socket, and that keeps or closes the copy. */
typedef void take_socket(void *context, int socket);
/*
 * Copy every socket of a process (pidfd_getfd) and pass the copies to `take`. Return 0, or the errno of the last descriptor
 * that could not be copied.
 */
int copy_sockets(pid_t pid, take_socket *take, void *context);
/* Report whether a socket is a UDP socket over IPv4 that is bound to a port. */
bool is_udp_port(int socket, unsigned port);
/* Return the kernel's number of a socket, which is equal for all copies of the socket. */
uint64_t socket_cookie(int socket);
#endif
