// SPDX-License-Identifier: MIT
/*
 * libsipstamp takes three of the six timestamps of each SIP message, without BPF and without root.
 *
 *  SIPSTAMP_DIR=<directory> SIPSTAMP_PORT=<UDP port> LD_PRELOAD=./libsipstamp.so kamailio ...
 *
 * Each process that receives on a UDP socket bound to the port writes <directory>/trace.<pid>.bin (trace.h) with
 * t_arr (SO_TIMESTAMPNS), t_sip_in and t_sip_out. The fields t_stack, t_sockq, t_dep, off_cpu_ns, switches and rmem
 * are 0. The trace has no records of drops. The header's field `reserved` has the kernel's number of drops
 * (SO_RXQ_OVFL) at the last received datagram. The number lacks drops after the last received datagram. All processes
 * that share a socket read the same counter, so a reader of several traces uses the largest number.
 *
 * The library maps the file into memory, so that a killed worker loses no record. The file grows in steps, so the file of
 * a killed worker ends in zeros. The library intercepts recvfrom, recvmsg, sendto and sendmsg. The library cannot
 * intercept recvmmsg, sendmmsg, io_uring, or system calls without libc. in_cost_ns is the time of the library's own
 * work: 0.3 to 1.3 us at the median.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "classify.h"
#include "../common/clock.h"
#include "../common/trace.h"

#define EXPORT        __attribute__((visibility("default")))
#define DESCRIPTORS   4096        /* the library ignores descriptors of this number and above */
#define MAP_BYTES     (8UL << 30) /* reserves only address space, not memory; enough for 87 million records */
#define GROW_BYTES    (1UL << 20)
#define SNIPPET_BYTES 2048
#define CONTROL_BYTES 512

enum descriptor_state {
	DESCRIPTOR_UNKNOWN = 0,
	DESCRIPTOR_OTHER,
	DESCRIPTOR_OURS
};

typedef ssize_t recvmsg_call(int, struct msghdr *, int);
typedef ssize_t sendmsg_call(int, const struct msghdr *, int);
typedef ssize_t sendto_call(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
typedef ssize_t recvfrom_call(int, void *, size_t, int, struct sockaddr *, socklen_t *);
typedef int bind_call(int, const struct sockaddr *, socklen_t);
typedef int close_call(int);

static struct {
	recvmsg_call *recvmsg;
	recvfrom_call *recvfrom;
	sendmsg_call *sendmsg;
	sendto_call *sendto;
	bind_call *bind;
	close_call *close;
} real;

static void resolve(void)
{
	real.recvmsg = (recvmsg_call *)dlsym(RTLD_NEXT, "recvmsg");
	real.recvfrom = (recvfrom_call *)dlsym(RTLD_NEXT, "recvfrom");
	real.sendmsg = (sendmsg_call *)dlsym(RTLD_NEXT, "sendmsg");
	real.sendto = (sendto_call *)dlsym(RTLD_NEXT, "sendto");
	real.bind = (bind_call *)dlsym(RTLD_NEXT, "bind");
	real.close = (close_call *)dlsym(RTLD_NEXT, "close");
}

/*
 * The real function of libc. At the first use, resolve() looks up all functions. The constructor start() would be too late,
 * because constructors of other libraries may call these functions earlier.
 */
#define REAL(call) (*(real.call ? real.call : (resolve(), real.call)))

static const char *directory; /* directory of the traces; NULL: the library records nothing */
static unsigned int port;
static _Atomic unsigned char descriptors[DESCRIPTORS];

/* The following variables describe the trace file of this process. */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static struct trace_header *header; /* start of the mapping; NULL before the first message */
static int trace_fd = -1;
static bool trace_failed;
static _Atomic size_t n_records;
static _Atomic size_t n_room; /* number of records for which the file has room */

/* The message that this thread is serving. */
static __thread struct {
	struct trace_record *record;
	size_t size;
	char text[16]; /* start of the received message, to recognise the forwarded message */
} service;

/* ---- the trace file ---- */

static void complain(const char *what)
{
	fprintf(stderr, "libsipstamp: pid %d: cannot %s the trace in %s: %s\n", (int)getpid(), what,
		directory, strerror(errno));
}

/*
 * Allocate disk blocks now, because on a full disk, a write to the mapping without disk blocks would kill the proxy by
 * SIGBUS.
 */
static bool grow_file(size_t bytes)
{
	int error = posix_fallocate(trace_fd, (off_t)bytes, GROW_BYTES);

	if (error) {
		errno = error;
		return false;
	}
	return true;
}

static void allow_room(size_t bytes)
{
	atomic_store(&n_room, (bytes - sizeof(*header)) / sizeof(struct trace_record));
}

static bool open_trace(void)
{
	struct trace_header start = {
		.version = TRACE_VERSION,
		.record_size = sizeof(struct trace_record),
		.mode = TRACE_MODE_PRELOAD,
	};
	char path[PATH_MAX];
	void *map;

	snprintf(path, sizeof(path), "%s/trace.%d.bin", directory, (int)getpid());
	trace_fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0644);
	if (trace_fd < 0 || !grow_file(0))
		return false;
	map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, trace_fd, 0);
	if (map == MAP_FAILED)
		return false;
	memcpy(start.magic, TRACE_MAGIC, sizeof(start.magic));
	memcpy(map, &start, sizeof(start));
	header = map;
	allow_room(GROW_BYTES);
	return true;
}

static struct trace_record *record_at(size_t index)
{
	return (struct trace_record *)(header + 1) + index;
}

/* Make room for a record in the file. Return false after an error, and report only the first error. */
static bool make_room(size_t index)
{
	bool good = true;

	pthread_mutex_lock(&growing);
	if (!header && !trace_failed && !open_trace()) {
		trace_failed = true;
		complain("open");
	}
	while (!trace_failed && index >= atomic_load(&n_room)) {
		size_t bytes = (size_t)lseek(trace_fd, 0, SEEK_END);

		if (bytes + GROW_BYTES > MAP_BYTES || !grow_file(bytes)) {
			trace_failed = true;
			complain("grow");
			break;
		}
		allow_room(bytes + GROW_BYTES);
	}
	good = !trace_failed;
	pthread_mutex_unlock(&growing);
	return good;
}

static struct trace_record *new_record(void)
{
	size_t index;

	if (trace_failed)
		return NULL;
	index = atomic_fetch_add(&n_records, 1);
	if (index >= atomic_load(&n_room) && !make_room(index))
		return NULL;
	return record_at(index);
}

/* Close the parent's trace in a child process. The child opens its own file at its first message. */
static void forget_trace(void)
{
	if (header)
		munmap(header, MAP_BYTES);
	if (trace_fd >= 0)
		REAL(close)(trace_fd);
	header = NULL;
	trace_fd = -1;
	trace_failed = false;
	atomic_store(&n_records, 0);
	atomic_store(&n_room, 0);
	memset(&service, 0, sizeof(service));
	pthread_mutex_init(&growing, NULL);
}

/* ---- the sockets of the port ---- */

static unsigned int port_of(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)address)->sin_port);
	if (address->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
	return 0;
}

static bool is_udp_on_port(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t address_size = sizeof(address);
	socklen_t type_size = sizeof(int);
	int type = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) && type == SOCK_DGRAM &&
	       !getsockname(fd, (struct sockaddr *)&address, &address_size) && port_of(&address) == port;
}

/*
 * Return whether a descriptor is a UDP socket of the port. At the first call for such a socket, request timestamps and
 * drop counts from the kernel.
 */
static bool is_ours(int fd)
{
	int saved_errno = errno;
	int on = 1;

	if (!directory || fd < 0 || fd >= DESCRIPTORS)
		return false;
	if (descriptors[fd] == DESCRIPTOR_UNKNOWN) {
		descriptors[fd] = is_udp_on_port(fd) ? DESCRIPTOR_OURS : DESCRIPTOR_OTHER;
		if (descriptors[fd] == DESCRIPTOR_OURS) {
			setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
			setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on));
		}
		errno = saved_errno;
	}
	return descriptors[fd] == DESCRIPTOR_OURS;
}

static void forget_descriptor(int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS)
		descriptors[fd] = DESCRIPTOR_UNKNOWN;
}

/* ---- timestamps ---- */

static uint16_t saturate_u16(uint64_t value)
{
	return value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

/* Read a message's arrival time on CLOCK_REALTIME (0 if it is missing) and the socket's number of drops. */
static uint64_t read_control(struct msghdr *message, uint32_t *drops)
{
	struct timespec arrival = { 0 };

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_TIMESTAMPNS)
			memcpy(&arrival, CMSG_DATA(c), sizeof(arrival));
		else if (c->cmsg_type == SO_RXQ_OVFL)
			memcpy(drops, CMSG_DATA(c), sizeof(*drops));
	}
	return (uint64_t)arrival.tv_sec * 1000000000ULL + (uint64_t)arrival.tv_nsec;
}

static void record_received(struct msghdr *control, const char *text, size_t snippet, size_t length)
{
	uint64_t t_sip_in = clock_ns();
	/*
	 * SO_TIMESTAMPNS uses CLOCK_REALTIME. Adding `to_monotonic` (modulo 2^64) converts a time to CLOCK_MONOTONIC.
	 */
	uint64_t to_monotonic = t_sip_in - read_clock(CLOCK_REALTIME);
	uint32_t drops = 0;
	uint64_t arrival = read_control(control, &drops);
	struct sip_class class = sip_classify(text, snippet < SNIPPET_BYTES ? snippet : SNIPPET_BYTES, NULL);
	struct trace_record *record = new_record();

	service.record = record;
	if (!record)
		return;
	if (drops > header->reserved)
		header->reserved = drops;
	service.size = snippet < sizeof(service.text) ? snippet : sizeof(service.text);
	memcpy(service.text, text, service.size);
	*record = (struct trace_record){
		.t_arr = arrival ? arrival + to_monotonic : 0,
		.t_sip_in = t_sip_in,
		.call_id_hash = class.call_id_hash,
		.cseq = class.cseq,
		.tid = (uint32_t)gettid(),
		.cpu = saturate_u16((uint64_t)sched_getcpu()),
		.length = saturate_u16(length),
		.flags = (uint16_t)(TRACE_FLAG_NO_SEND | (arrival ? 0 : TRACE_FLAG_UNMATCHED)),
		.event = TRACE_EVENT_MESSAGE,
		.kind = class.kind,
	};
	record->in_cost_ns = saturate_u16(clock_ns() - t_sip_in);
}

static void record_sent(const char *text, size_t size)
{
	struct trace_record *record = service.record;
	uint64_t t_sip_out;

	if (!record)
		return;
	t_sip_out = clock_ns();
	if (record->n_send < UINT8_MAX)
		record->n_send++;
	/* The first sent datagram with the same method or status code is the forwarded message. */
	if (record->t_sip_out || !sip_same_start(service.text, service.size, text, size))
		return;
	record->t_sip_out = t_sip_out;
	record->flags = (uint16_t)((record->flags & ~TRACE_FLAG_NO_SEND) | TRACE_FLAG_NO_DEP);
	record->out_cost_ns = saturate_u16(clock_ns() - t_sip_out);
}

/* ---- calls of the proxy ---- */

__attribute__((constructor)) static void start(void)
{
	const char *port_text = getenv("SIPSTAMP_PORT");

	directory = getenv("SIPSTAMP_DIR");
	port = port_text ? (unsigned int)strtoul(port_text, NULL, 10) : 0;
	if (directory && (port == 0 || port > UINT16_MAX)) {
		fprintf(stderr,
			"libsipstamp: SIPSTAMP_PORT: expected a UDP port, found \"%s\"; nothing is "
			"recorded\n",
			port_text ? port_text : "");
		directory = NULL;
	}
	pthread_atfork(NULL, NULL, forget_trace);
}

/* When the process exits, cut off the zeros at the end of the trace. */
__attribute__((destructor)) static void stop(void)
{
	size_t bytes;

	if (!header || trace_failed)
		return;
	bytes = sizeof(*header) + atomic_load(&n_records) * sizeof(struct trace_record);
	directory = NULL;
	if (ftruncate(trace_fd, (off_t)bytes))
		/* Ignore a failed truncation, because a trace that ends in zeros is valid. */
		return;
}

/* Request timestamps at bind(), so that even the first datagram has an arrival time. */
EXPORT int bind(int fd, const struct sockaddr *address, socklen_t size)
{
	int result = REAL(bind)(fd, address, size);

	forget_descriptor(fd);
	if (!result)
		is_ours(fd);
	return result;
}

EXPORT int close(int fd)
{
	forget_descriptor(fd);
	return REAL(close)(fd);
}

EXPORT ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
			socklen_t *address_size)
{
	char control[CONTROL_BYTES] __attribute__((aligned(8)));
	struct iovec piece = { buffer, size };
	struct msghdr message = {
		.msg_name = address,
		.msg_namelen = address && address_size ? *address_size : 0,
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t length;

	if ((flags & (MSG_PEEK | MSG_ERRQUEUE)) || !is_ours(fd))
		return REAL(recvfrom)(fd, buffer, size, flags, address, address_size);
	service.record = NULL;
	length = REAL(recvmsg)(fd, &message, flags);
	if (length < 0)
		return length;
	if (address && address_size)
		*address_size = message.msg_namelen;
	record_received(&message, buffer, (size_t)length < size ? (size_t)length : size, (size_t)length);
	return length;
}

/* Programs that were compiled with _FORTIFY_SOURCE call glibc's __recvfrom_chk() instead of recvfrom(). */
EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t buffer_size, int flags,
			      struct sockaddr *address, socklen_t *address_size)
{
	if (size > buffer_size)
		abort();
	return recvfrom(fd, buffer, size, flags, address, address_size);
}

/* Copy the control messages to the caller, except for the messages that only this library requested. */
static void pass_control(struct msghdr *from, struct msghdr *to, void *control, size_t room)
{
	size_t used = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(from); c; c = CMSG_NXTHDR(from, c)) {
		if (c->cmsg_level == SOL_SOCKET &&
		    (c->cmsg_type == SCM_TIMESTAMPNS || c->cmsg_type == SO_RXQ_OVFL))
			continue;
		if (used + CMSG_ALIGN(c->cmsg_len) > room) {
			to->msg_flags |= MSG_CTRUNC;
			break;
		}
		memcpy((char *)control + used, c, c->cmsg_len);
		used += CMSG_ALIGN(c->cmsg_len);
	}
	to->msg_control = control;
	to->msg_controllen = used;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	char control[CONTROL_BYTES] __attribute__((aligned(8)));
	void *callers_control = message->msg_control;
	size_t callers_room = message->msg_controllen;
	struct msghdr ours;
	size_t snippet;
	ssize_t length;

	if ((flags & (MSG_PEEK | MSG_ERRQUEUE)) || !is_ours(fd) || !message->msg_iovlen)
		return REAL(recvmsg)(fd, message, flags);
	service.record = NULL;
	message->msg_control = control;
	message->msg_controllen = sizeof(control);
	length = REAL(recvmsg)(fd, message, flags);
	ours = *message;
	message->msg_control = callers_control;
	message->msg_controllen = callers_room;
	if (length < 0)
		return length;
	pass_control(&ours, message, callers_control, callers_room);
	snippet = (size_t)length;
	if (snippet > message->msg_iov[0].iov_len)
		snippet = message->msg_iov[0].iov_len;
	record_received(&ours, message->msg_iov[0].iov_base, snippet, (size_t)length);
	return length;
}

EXPORT ssize_t sendto(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *address,
		      socklen_t address_size)
{
	if (is_ours(fd))
		record_sent(buffer, size);
	return REAL(sendto)(fd, buffer, size, flags, address, address_size);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (is_ours(fd) && message->msg_iovlen)
		record_sent(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
	return REAL(sendmsg)(fd, message, flags);
}
