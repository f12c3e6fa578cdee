// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "arrival.h"
#include "../common/clock.h"

#define INVITE     0x494e5649 /* the characters "INVI" as a number */
#define UDP_HEADER 8

int arrival_open(uint16_t port, uint16_t last_port, bool tcp)
{
	/* Load the header's length to find its end. For TCP, the upper half of byte 12 is the length in 4-byte words. */
	struct sock_filter length = tcp ? (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_IND, 12)
					: (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, UDP_HEADER << 2);
	/* All offsets count from the start of the IPv4 header. The last two instructions accept and reject the packet. */
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, tcp ? IPPROTO_TCP : IPPROTO_UDP, 0, 14),
		/* Reject all fragments but the first, because only the first fragment has the port. */
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 12, 0),
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, port, 0, 9),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last_port, 8, 0),
		length,
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x3c),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, INVITE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	/*
	 * Bind to the protocol IPv4, because a socket that is bound to one protocol gets no packets that this host
	 * itself sends.
	 */
	struct sockaddr_ll any = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	/* Open the socket without a protocol, so that it gets no packets before the filter is attached. */
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0), yes = 1, error;

	if (fd < 0)
		return -1;
	if (!setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) &&
	    !setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof(yes)) &&
	    !bind(fd, (struct sockaddr *)&any, sizeof(any)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

uint64_t arrival_read(int socket)
{
	char data[4], room[CMSG_SPACE(sizeof(struct timespec))];
	struct iovec part = { data, sizeof(data) };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
	};
	uint64_t now = clock_ns(), real = read_clock(CLOCK_REALTIME);
	struct cmsghdr *control;
	struct timespec stamp;
	uint64_t ago;

	if (recvmsg(socket, &message, MSG_DONTWAIT) < 0)
		return now;
	control = CMSG_FIRSTHDR(&message);
	if (!control || control->cmsg_type != SCM_TIMESTAMPNS)
		return now;
	memcpy(&stamp, CMSG_DATA(control), sizeof(stamp));
	ago = real - ((uint64_t)stamp.tv_sec * NS_PER_S + (uint64_t)stamp.tv_nsec);
	/*
	 * If the timestamp is a second old or more, CLOCK_REALTIME was set after the timestamp, so ignore the
	 * timestamp.
	 */
	return ago < NS_PER_S ? now - ago : now;
}
