// SPDX-License-Identifier: GPL-2.0
/*
 * These programs count how long SIP datagrams wait and how long their service takes, without a record per message.
 *
 * waiting    from netif_receive_skb to sock_recv_length, at the end of the worker's receive call
 * service    from sock_recv_length to the last net_dev_queue of the same task before its next message
 *
 * The programs use no hook on the path of system calls, because such a hook would slow all system calls of all tasks.
 * The programs count every message by method or status. To save CPU time, the programs measure the times of only a
 * quarter of the messages: datagrams that arrive in 2 of 8 jiffies. When a worker receives such a datagram, the
 * programs recognise the datagram by a fingerprint of the payload.
 */
#include "common.bpf.h"
#include "fingerprint.bpf.h"
#include "histograms.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __u16 cfg_port = 5060;
const volatile __u16 cfg_ports = 1;
const volatile __u32 cfg_netns = 0;

#define MSG_PEEK     2
#define PROTOCOL_UDP 17
#define STALE_NS     10000000000ULL /* no datagram waits longer than this in a queue */
#define ARRIVALS     16384          /* a power of two; the index is the low bits of the fingerprint */
#define HEAD_BYTES   12 /* these first bytes of a message hold its method or status, such as "SIP/2.0 200 " */

/* A datagram with a measured arrival time, between netif_receive_skb and the worker. */
struct arrival {
	__u64 fingerprint;
	__u64 t; /* 0: this entry is free */
};

struct histogram_task tasks[HISTOGRAM_TASKS];
__u32 largest_queue_bytes; /* largest socket queue since the last output line; reset by count.c */
static struct arrival arrivals[ARRIVALS];
/*
 * Number of datagrams with a measured arrival time that no worker has received. While the number is 0, a received message
 * needs no fingerprint, which saves time. The number includes dropped datagrams until a worker finds the queue empty.
 */
static __s64 underway;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histograms);
} counts SEC(".maps");

struct headers_ipv4 {
	struct iphdr ip;
	struct udphdr udp;
};

struct headers_ipv6 {
	struct ipv6hdr ip;
	struct udphdr udp;
};

static __always_inline struct histograms *counts_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline bool socket_is_ours(struct sock *sk)
{
	return port_is_ours(sk->__sk_common.skc_num) && sk->sk_protocol == PROTOCOL_UDP &&
	       sk->__sk_common.skc_net.net->ns.inum == cfg_netns;
}

/* ---- histograms ---- */

static __always_inline __u32 bin_of(__u64 t)
{
	__u32 power = HISTOGRAM_BITS;

	if (t < HISTOGRAM_PARTS)
		return t;
	if (t >> HISTOGRAM_POWERS)
		return HISTOGRAM_BINS - 1;
#pragma unroll
	for (int step = 16; step; step /= 2) {
		if (t >> (power + step))
			power += step;
	}
	return (power - HISTOGRAM_BITS) * HISTOGRAM_PARTS + (t >> (power - HISTOGRAM_BITS));
}

static __always_inline void count_time(__u32 *bins, __u64 t)
{
	__u32 bin = bin_of(t);

	barrier_var(bin); /* Let the BPF verifier see that the checked value is the index. */
	if (bin < HISTOGRAM_BINS)
		bins[bin]++;
}

/* ---- methods and status codes ---- */

/* Four letters as one number, in the byte order in which the CPU loads them from memory. */
#define LETTERS(text) \
	((__u32)(text)[0] | (__u32)(text)[1] << 8 | (__u32)(text)[2] << 16 | (__u32)(text)[3] << 24)

static __always_inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Return the index of the message's method or status in `names`. */
static __always_inline __u32 name_of(const char *head)
{
	__u32 letters = LETTERS(head);
	__u32 name = HISTOGRAM_FIRST_METHOD;

	if (letters == LETTERS("SIP/")) {
		if (!is_digit(head[8]) || !is_digit(head[9]) || !is_digit(head[10]))
			return HISTOGRAM_NOT_SIP;
		return (head[8] - '0') * 100 + (head[9] - '0') * 10 + (head[10] - '0');
	}
#define COMPARE(method)                 \
	if (letters == LETTERS(method)) \
		return name;            \
	name++;
	HISTOGRAM_METHODS(COMPARE)
#undef COMPARE
	for (int i = 0; i < 3; i++) {
		if (head[i] < 'A' || head[i] > 'Z')
			return HISTOGRAM_NOT_SIP;
	}
	return HISTOGRAM_OTHER_REQUEST;
}

/* ---- arrival ---- */

/* Return the number of bytes before the payload, or 0 if the packet is for another port. Store the payload's length. */
static __always_inline __u32 payload_of(struct sk_buff *skb, __u32 *length)
{
	struct headers_ipv4 headers;
	struct headers_ipv6 long_headers;

	if (skb->dev->nd_net.net->ns.inum != cfg_netns)
		return 0;
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		/* ASSUME SIP datagrams have no IP options and are not fragmented: the UDP header has a fixed offset */
		if (bpf_probe_read_kernel(&headers, sizeof(headers), skb->data) ||
		    headers.ip.protocol != PROTOCOL_UDP || headers.ip.ihl != 5 ||
		    !port_is_ours(bpf_ntohs(headers.udp.dest)))
			return 0;
		*length = bpf_ntohs(headers.udp.len) - sizeof(headers.udp);
		return sizeof(headers);
	}
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV6)) {
		if (bpf_probe_read_kernel(&long_headers, sizeof(long_headers), skb->data) ||
		    long_headers.ip.nexthdr != PROTOCOL_UDP ||
		    !port_is_ours(bpf_ntohs(long_headers.udp.dest)))
			return 0;
		*length = bpf_ntohs(long_headers.udp.len) - sizeof(long_headers.udp);
		return sizeof(long_headers);
	}
	return 0;
}

static __always_inline struct arrival *arrival_of(__u64 fingerprint)
{
	return &arrivals[fingerprint & (ARRIVALS - 1)];
}

/* Return how many bytes of a message its fingerprint covers. For a short message, first clear `words`. */
static __always_inline __u32 fingerprint_bytes(__u64 *words, __u32 length)
{
	if (length >= PROBE_FINGERPRINT_BYTES)
		return PROBE_FINGERPRINT_BYTES;
	__builtin_memset(words, 0, PROBE_FINGERPRINT_BYTES);
	return length & (PROBE_FINGERPRINT_BYTES - 1);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_arrival, struct sk_buff *skb)
{
	struct arrival *arrival;
	struct histograms *here;
	__u64 fingerprint;
	__u32 length, size;
	__u32 ahead;

	if (bpf_jiffies64() & HISTOGRAM_UNTIMED)
		return 0;
	ahead = payload_of(skb, &length);
	if (!ahead)
		return 0;
	here = counts_here();
	if (!here)
		return 0;
	size = fingerprint_bytes(here->arrived, length);
	/* ASSUME the skb's linear part has the first 256 payload bytes. For other datagrams, measure no times. */
	if (skb->len - skb->data_len < ahead + size)
		return 0;
	if (bpf_probe_read_kernel(here->arrived, size, skb->data + ahead))
		return 0;
	fingerprint = fingerprint_of(here->arrived, length);
	arrival = arrival_of(fingerprint);
	if (arrival->t)
		here->unmatched++; /* no worker received the earlier datagram: the kernel may have dropped it */
	__sync_fetch_and_add(&underway, 1);
	arrival->fingerprint = fingerprint;
	arrival->t = bpf_ktime_get_ns();
	return 0;
}

/* ---- receive ---- */

/* Count the service time of the task's last message. The service has ended, because the task received another message. */
static __always_inline void end_service(struct histograms *here, struct histogram_task *task)
{
	if (!task->t_received || !task->t_sent)
		return;
	count_time(here->service, task->t_sent - task->t_received);
	here->service_ns += task->t_sent - task->t_received;
}

/* Count the waiting time of a message and return the present time. Return 0 if the arrival time was not measured. */
static __always_inline __u64 end_waiting(struct histograms *here, const void *buffer, __u32 length, bool last)
{
	__u32 size = fingerprint_bytes(here->received, length);
	struct arrival *arrival;
	__u64 fingerprint, now;

	if (bpf_probe_read_user(here->received, size, buffer))
		return 0;
	fingerprint = fingerprint_of(here->received, length);
	arrival = arrival_of(fingerprint);
	now = bpf_ktime_get_ns();
	if (!arrival->t || arrival->fingerprint != fingerprint || now - arrival->t > STALE_NS)
		now = 0;
	else
		count_time(here->waiting, now - arrival->t);
	if (now) {
		arrival->t = 0;
		__sync_fetch_and_add(&underway, -1);
	}
	/* If the queue is empty, the kernel has dropped all datagrams that `underway` still counts. */
	if (last)
		underway = 0;
	return now;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int length, int flags)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct histogram_task *task = &tasks[tid & (HISTOGRAM_TASKS - 1)];
	char head[HEAD_BYTES] = {};
	struct histograms *here;
	struct pt_regs *regs;
	__u32 name, rmem;
	void *buffer;

	if (length < 0 || flags & MSG_PEEK || !socket_is_ours(sk))
		return 0;
	here = counts_here();
	if (!here)
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	buffer = user_buffer(regs, SYSCALL_OF(regs));
	name = bpf_probe_read_user(head, sizeof(head), buffer) ? HISTOGRAM_NOT_SIP : name_of(head);
	barrier_var(name);
	if (name < HISTOGRAM_NAMES)
		here->names[name]++;
	rmem = sk->sk_backlog.rmem_alloc.counter;
	if (rmem > largest_queue_bytes)
		largest_queue_bytes = rmem;
	if (task->tid == tid) {
		end_service(here, task);
		task->received++;
	} else {
		/*
		 * ASSUME no two workers have thread ids with equal low 12 bits. Two such workers would share an entry,
		 * and service times would get lost.
		 */
		task->tid = tid;
		task->received = 1;
	}
	task->t_sent = 0;
	task->t_received = underway > 0 ? end_waiting(here, buffer, length, !rmem) : 0;
	return 0;
}

/* ---- send ---- */

SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_send, struct sk_buff *skb)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct histogram_task *task = &tasks[tid & (HISTOGRAM_TASKS - 1)];
	struct sock *sk;

	if (!task->t_received || task->tid != tid)
		return 0;
	sk = skb->sk;
	/* An interrupt may send another packet in the task's context, so check that the socket belongs to the proxy. */
	if (sk && socket_is_ours(sk))
		task->t_sent = bpf_ktime_get_ns();
	return 0;
}
