/* SPDX-License-Identifier: MIT */
/* Functions that find the UDP sockets of other processes, with Linux 5.6 and as root or with CAP_SYS_PTRACE. */
#ifndef SIPSCHED_SOCKETS_H
#define SIPSCHED_SOCKETS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A function that receives a copy of another process's socket. The function must keep or close the copy. */
typedef void take_socket(void *context, int socket);
/*
 * Copy every socket of a process (pidfd_getfd) and pass the copies to `take`. Return 0 on success, or the errno of the
 * last failed copy.
 */
int copy_sockets(pid_t pid, take_socket *take, void *context);
/* Return whether a socket is a UDP socket over IPv4 that is bound to the port `port`. */
bool is_udp_port(int socket, unsigned port);
/* Return the number by which the kernel identifies a socket. All copies of a socket have the same number. */
uint64_t socket_cookie(int socket);
#endif
