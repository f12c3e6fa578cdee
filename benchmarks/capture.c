// SPDX-License-Identifier: MIT
/*
 * capture writes each UDP packet from or to the SIP port of any interface to a file, until it receives SIGTERM:
 *
 *     u64 time of the packet (kernel's timestamp, CLOCK_REALTIME, in ns), u64 CLOCK_MONOTONIC minus CLOCK_REALTIME,
 *     u32 1 for a packet that leaves the host, u32 length of the payload, payload
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BUFFER_BYTES (64 << 20)

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
	int one = 1, bytes = BUFFER_BYTES, port = argc == 3 ? atoi(argv[1]) : 0;
	int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL));
	struct sigaction action = { .sa_handler = stop };
	struct sockaddr_ll from;
	char packet[65536], control[256];
	FILE *file = argc == 3 ? fopen(argv[2], "wb") : NULL;

	if (!file || fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes))) {
		perror("capture PORT FILE");
		return 1;
	}
	sigaction(SIGTERM, &action, NULL);
	while (!stopped) {
		struct iovec data = { packet, sizeof(packet) };
		struct msghdr message = { .msg_name = &from,
					  .msg_namelen = sizeof(from),
					  .msg_iov = &data,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		ssize_t length = recvmsg(fd, &message, 0);
		const struct iphdr *ip = (const void *)packet;
		const struct udphdr *udp = (const void *)(packet + 4 * ip->ihl);
		const struct cmsghdr *time = CMSG_FIRSTHDR(&message);
		uint64_t times[2] = { 0, now(CLOCK_MONOTONIC) - now(CLOCK_REALTIME) };
		uint32_t numbers[2] = { from.sll_pkttype == PACKET_OUTGOING, 0 };

		if (length < 28 || from.sll_protocol != htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP ||
		    (ntohs(udp->source) != port && ntohs(udp->dest) != port))
			continue;
		if (time && time->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec stamp;

			memcpy(&stamp, CMSG_DATA(time), sizeof(stamp));
			times[0] = (uint64_t)stamp.tv_sec * 1000000000 + (uint64_t)stamp.tv_nsec;
		}
		numbers[1] = ntohs(udp->len) - 8U;
		fwrite(times, sizeof(times), 1, file);
		fwrite(numbers, sizeof(numbers), 1, file);
		fwrite((const char *)udp + 8, 1, numbers[1], file);
	}
	return fclose(file) != 0;
}
