// SPDX-License-Identifier: GPL-2.0
/*
 * These programs take six timestamps of each SIP datagram. The kernel and the proxy need no change.
 *
 * t_arr      netif_rx, napi_gro_receive_entry, netif_receive_skb_entry, netif_receive_skb: the earliest of these events
 * t_stack    exact mode: fentry __udp_enqueue_schedule_skb; tracepoint mode: sk_data_ready, at the tail of the queue
 * t_sockq    exact mode: fexit __skb_recv_udp; tracepoint mode: a lower bound from sched_switch
 * t_sip_in   sys_exit of recvfrom, recvmsg
 * t_sip_out  sys_enter of sendto, sendmsg
 * t_dep      net_dev_queue assigns the packet to the send, and net_dev_start_xmit takes the timestamp
 *
 * The hooks recognise a message as follows. Up to the socket's queue, they use the address of the skb. From the queue
 * to the worker, exact mode uses the same address, and tracepoint mode uses a fingerprint of the payload. From
 * receive to send, they use the thread. From the send on, they use the address of the sent skb.
 *
 * The programs keep their state in arrays in .bss instead of hash maps. An access then takes only a few ns, and user
 * space reads the arrays as ordinary memory.
 */
#include "common.bpf.h"
#include "fingerprint.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __u16 cfg_port = 5060;
const volatile __u16 cfg_ports = 1; /* number of consecutive ports to trace, from cfg_port on */
const volatile __u32 cfg_netns = 0;
const volatile __u32 cfg_snippet = PROBE_SNIPPET_DEFAULT;
const volatile bool cfg_exact = false;
const volatile bool cfg_ipv6 = false; /* true: the probe also traces datagrams over IPv6 */

#define PROTOCOL_UDP 17
#define STALE_NS     10000000000LL /* after this time, the probe may overwrite an entry of an old arrival */
/*
 * No datagram waits longer than this in a queue. Once recording has been on for this time, a received datagram without
 * a known arrival therefore counts as unmatched. Before this time, the datagram may have arrived while recording was
 * off.
 */
#define BEHIND_NS      1000000000LL
#define UNDERWAY_NS    100000000LL /* ASSUME no packet needs more time from the driver to the socket's queue */
#define WAYS           8 /* entries per hash set; if 5000 datagrams wait, 1 arrival in 3 million finds its set full */
#define DRIVER_STALE   250 /* maximum jiffies from driver to protocol layer (0.25 to 2.5 s, by CONFIG_HZ) */
#define PACKET_SETS    8192
#define PAYLOAD_SETS   8192
#define DEPARTURES     1024
#define QUEUE_WALK_MAX 16

/* A datagram between the driver and the socket's queue. In exact mode, the entry stays until a worker receives it. */
struct packet {
	__u64 skb; /* address of the skb; 0: this entry is free */
	__u64 t_arr;
	__u64 t_stack;
	__u32 rmem;
	__u32 payload_index; /* 1 + index in `payloads`; 0: `payloads` has no entry for the packet */
	__u32 seen;          /* 1: the packet has reached the protocol layer (netif_receive_skb) */
	__u32 jiffies; /* arrival time in jiffies, because reading jiffies is faster than reading the clock */
};

/* A waiting datagram in tracepoint mode. When a worker reads the datagram, this entry provides its arrival time. */
struct payload {
	__u64 fingerprint;
	__u64 t_arr;
	__u64 t_stack;
	__u32 rmem;
	__u16 used;
	__u16 flags;
};

/* A sent packet between net_dev_queue and net_dev_start_xmit. The entry identifies the send that gets t_dep. */
struct departure {
	__u64 skb;
	__u32 slot;
	__u32 service;
	__u32 index;
	__u32 padding;
};

struct packet_headers {
	struct iphdr ip;
	struct udphdr udp;
};

struct packet_headers_ipv6 {
	struct ipv6hdr ip;
	struct udphdr udp;
};

struct probe_counters counters[PROBE_CPUS];
struct probe_worker workers[PROBE_WORKERS];
/* The array's index is the low bits of a thread id. An entry is 1 + the thread's index in `workers`. */
__u16 slot_of_tid[PROBE_TID_SLOTS];
__u32 recording; /* 1: the hooks record arrivals */
__u64 since_ns;  /* when recording last began; the probe ignores stored arrivals before this time */

/* The next arrays are static, so that the generated skeleton for user space excludes them. */
static struct payload payloads[PAYLOAD_SETS * WAYS];
static struct departure departures[DEPARTURES];
/*
 * Per CPU, the datagram that the kernel last passed to the protocol layer. In the probe's mode `exact`, it is the datagram
 * that the kernel last passed to the proxy's socket.
 */
static __u64 last_skb[PROBE_CPUS];

struct ring ring SEC(".maps");

/* The packets are in a map and not in .bss, because Linux 5.10 refuses a .bss of more than 4 MiB. */
struct packet_set {
	struct packet ways[WAYS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PACKET_SETS);
	__type(key, __u32);
	__type(value, struct packet_set);
} packets SEC(".maps");

/* ---- functions that recognise packets and sockets of the port ---- */

static __always_inline bool is_ipv6(struct sk_buff *skb)
{
	return cfg_ipv6 && skb->protocol == bpf_htons(ETHERTYPE_IPV6);
}

static __always_inline bool may_be_ours(struct sk_buff *skb)
{
	return is_from_network(skb) || (is_ipv6(skb) && skb->dev->nd_net.net->ns.inum == cfg_netns);
}

/* Read a packet's headers. Return whether the packet is sent to a traced port. For IPv6, store only the UDP header. */
static __always_inline bool packet_is_ours(struct sk_buff *skb, struct packet_headers *headers)
{
	struct packet_headers_ipv6 long_headers;

	if (is_ipv6(skb)) {
		if (bpf_probe_read_kernel(&long_headers, sizeof(long_headers), skb->data))
			return false;
		headers->udp = long_headers.udp;
		/* ASSUME SIP datagrams have no IPv6 extension headers, so the UDP header follows directly */
		return long_headers.ip.nexthdr == PROTOCOL_UDP &&
		       port_is_ours(bpf_ntohs(long_headers.udp.dest));
	}
	if (bpf_probe_read_kernel(headers, sizeof(*headers), skb->data))
		return false;
	/* ASSUME SIP datagrams have no IP options and are not fragmented, so the UDP header is at a fixed offset */
	return headers->ip.protocol == PROTOCOL_UDP && headers->ip.ihl == 5 &&
	       port_is_ours(bpf_ntohs(headers->udp.dest));
}

static __always_inline bool socket_is_ours(struct sock *sk)
{
	return port_is_ours(sk->__sk_common.skc_num) && sk->sk_protocol == PROTOCOL_UDP &&
	       sk->__sk_common.skc_net.net->ns.inum == cfg_netns;
}

/*
 * Return whether the descriptor is a socket of a traced port. The check takes about 0.3 us. The check is needed only if
 * the descriptor differs from the descriptor of the worker's last message.
 */
static __noinline bool descriptor_is_ours(int fd)
{
	struct sock *sk = socket_of(fd);

	return port_is_ours(BPF_CORE_READ(sk, __sk_common.skc_num)) &&
	       BPF_CORE_READ(sk, sk_protocol) == PROTOCOL_UDP;
}

static __always_inline bool descriptor_is_of(const struct probe_worker *worker, int fd)
{
	return fd == worker->fd || descriptor_is_ours(fd);
}

/* ---- arrivals at the driver ---- */

/* Return the time since `then` in ns. The result may be negative, because the clocks of CPUs may differ slightly. */
static __always_inline __s64 age(__u64 now, __u64 then)
{
	return now - then;
}

/*
 * Return the oldest valid arrival time. An entry with an earlier arrival is too old, or is from before the recording.
 */
static __always_inline __s64 stale_before(__u64 now)
{
	__s64 before = now - STALE_NS;

	return before > (__s64)since_ns ? before : since_ns;
}

/*
 * Return whether a datagram without a known arrival may have arrived while recording was off. Because the socket's
 * queue is in order, such a datagram is possible until the worker has received the first datagram of the recording.
 * Afterwards, such a datagram is possible only for UNDERWAY_NS, because packets from several CPUs may overtake each
 * other on the way to the queue.
 */
static __always_inline bool may_be_older(__u64 now, bool behind)
{
	return !recording || age(now, since_ns) < (behind ? BEHIND_NS : UNDERWAY_NS);
}

static __always_inline struct packet_set *packet_set(__u64 skb)
{
	__u32 number = ((skb >> 6) * 0x9E3779B97F4A7C15ULL) >> 40 & (PACKET_SETS - 1);

	return bpf_map_lookup_elem(&packets, &number);
}

static __always_inline struct packet *find_packet(__u64 skb)
{
	struct packet_set *set = packet_set(skb);

	for (__u32 i = 0; set && i < WAYS; i++) {
		struct packet *packet = &set->ways[i];

		if (packet->skb == skb)
			return packet->t_arr >= since_ns ? packet : NULL;
	}
	return NULL;
}

/*
 * Return a sort key for replacement: the entry with the smallest key is replaced. The low bits of the key are the entry's
 * index in its set. With a single number for arrival time and index, the BPF verifier has fewer combinations to check
 * than with two variables.
 */
static __always_inline __u64 choice(__u64 t_arr, __u32 place)
{
	return (t_arr & ~(WAYS - 1ULL)) | place;
}

/*
 * Return the index in the hash set for the entry of this skb. An entry with the same address is reused, because the
 * kernel has reused the buffer for a new packet. The function is global, so the BPF verifier checks the function once
 * instead of once per caller.
 */
__noinline __u32 place_of_packet(__u64 skb, __u64 now)
{
	struct packet_set *set = packet_set(skb);
	__s64 stale = stale_before(now);
	__u64 best = ~0ULL;

	for (__u32 i = 0; set && i < WAYS; i++) {
		struct packet *packet = &set->ways[i];
		__u64 entry = choice(packet->t_arr, i);

		if (packet->skb == skb)
			entry = choice(0, i);
		else if (!packet->skb || (__s64)packet->t_arr < stale)
			entry = choice(WAYS, i);
		if (entry < best)
			best = entry;
	}
	if (best >= 2 * WAYS)
		COUNT(evicted);
	return best & (WAYS - 1);
}

/* Add a new packet to `packets`. The function never returns NULL, but the BPF verifier requires the check of `set`. */
static __always_inline struct packet *new_packet(__u64 skb, __u64 now)
{
	__u32 place = place_of_packet(skb, now) & (WAYS - 1);
	struct packet_set *set = packet_set(skb);
	struct packet *packet;

	if (!set)
		return NULL;
	packet = &set->ways[place];
	packet->t_arr = now;
	packet->t_stack = 0;
	packet->rmem = 0;
	packet->payload_index = 0;
	packet->seen = 0;
	packet->jiffies = bpf_jiffies64();
	packet->skb = skb;
	return packet;
}

/* Add a datagram with this payload fingerprint to `payloads`. Return 1 + the index of the new entry. */
__noinline __u32 enter_payload(__u64 fingerprint, __u64 t_arr)
{
	__u32 base = (fingerprint & (PAYLOAD_SETS - 1)) * WAYS;
	__s64 stale = stale_before(t_arr);
	__u64 best = ~0ULL;
	__u16 flags = 0;
	__u32 index;

	for (__u32 i = 0; i < WAYS; i++) {
		struct payload *payload = &payloads[(base + i) & (PAYLOAD_SETS * WAYS - 1)];
		__u64 entry = choice(payload->t_arr, i);

		if (!payload->used || (__s64)payload->t_arr < stale)
			entry = choice(0, i);
		else if (payload->fingerprint == fingerprint)
			flags = PROBE_FLAG_DUPLICATE;
		if (entry < best)
			best = entry;
	}
	if (flags)
		COUNT(duplicates);
	/*
	 * If the set is full, replace the oldest entry. The kernel most probably refused the datagram of this entry
	 * without an event, because younger datagrams still wait.
	 */
	if (best >= WAYS)
		COUNT(evicted);
	index = base + (best & (WAYS - 1));
	/* The compiler knows that the index is within bounds, but the BPF verifier of Linux 6.1 needs the mask. */
	barrier_var(index);
	index &= PAYLOAD_SETS * WAYS - 1;
	payloads[index].fingerprint = fingerprint;
	payloads[index].t_arr = t_arr;
	payloads[index].t_stack = 0;
	payloads[index].rmem = 0;
	payloads[index].flags = flags;
	payloads[index].used = 1;
	return index + 1;
}

/* Add a datagram to `payloads` by the payload's fingerprint. Return 1 + the index, or 0 if the payload is unreadable. */
static __always_inline __u32 new_payload(struct sk_buff *skb, struct packet_headers *headers, __u64 t_arr)
{
	__u64 words[FINGERPRINT_WORDS] = {};
	__u32 length = bpf_ntohs(headers->udp.len) - sizeof(headers->udp);
	__u32 size = length < PROBE_FINGERPRINT_BYTES ? length : PROBE_FINGERPRINT_BYTES;
	__u32 linear = skb->len - skb->data_len;
	__u32 ahead = is_ipv6(skb) ? sizeof(struct packet_headers_ipv6) : sizeof(*headers);

	/*
	 * ASSUME the driver put the first 256 payload bytes into the linear part of the skb. Otherwise, the datagram has no
	 * fingerprint, and the report counts it as unmatched.
	 */
	if (linear < ahead + size)
		return 0;
	size &= 2 * PROBE_FINGERPRINT_BYTES - 1;
	if (size > PROBE_FINGERPRINT_BYTES)
		return 0;
	if (bpf_probe_read_kernel(words, size, skb->data + ahead))
		return 0;
	return enter_payload(fingerprint_of(words, length), t_arr);
}

static __always_inline void enter_packet(struct sk_buff *skb, struct packet_headers *headers)
{
	struct packet *packet;
	__u64 now;

	if (!recording)
		return;
	now = bpf_ktime_get_ns();
	packet = new_packet(address_of(skb), now);
	COUNT(arrived);
	if (packet && !cfg_exact)
		packet->payload_index = new_payload(skb, headers, now);
}

/*
 * Store the arrival with all known facts at the earliest hook, because later hooks may miss the packet: a kernel may skip
 * BPF programs for some packets (docs/methodology/timestamps.md). With receive steering to another CPU, the kernel skips
 * the programs of netif_receive_skb and sk_data_ready for up to 2 packets in 1,000, and recursion_misses stays 0. For
 * these packets, the program of netif_rx has already run.
 */
static __always_inline int on_driver(struct sk_buff *skb)
{
	struct packet_headers headers;

	if (may_be_ours(skb) && packet_is_ours(skb, &headers))
		enter_packet(skb, &headers);
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(on_netif_rx, struct sk_buff *skb)
{
	return on_driver(skb);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(on_napi_gro_receive, struct sk_buff *skb)
{
	return on_driver(skb);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(on_netif_receive_entry, struct sk_buff *skb)
{
	return on_driver(skb);
}

/* Every received packet passes the tracepoint netif_receive_skb exactly once, with any driver. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_netif_receive, struct sk_buff *skb)
{
	struct packet_headers headers;
	struct packet *packet;
	__u64 address;

	if (!may_be_ours(skb))
		return 0;
	address = address_of(skb);
	packet = find_packet(address);
	/* Parse the headers only if no hook of the driver has already stored the packet. */
	if (!packet || packet->seen || (__u32)bpf_jiffies64() - packet->jiffies > DRIVER_STALE) {
		if (!packet_is_ours(skb, &headers))
			return 0;
		enter_packet(skb, &headers);
		packet = find_packet(address);
	}
	if (packet)
		packet->seen = 1;
	/*
	 * In exact mode, on_enqueue sets last_skb later. This hook would be too early: when the kernel receives packets as
	 * a list, all packets of the list pass this hook before the first packet is queued.
	 */
	if (!cfg_exact)
		last_skb[bpf_get_smp_processor_id() & (PROBE_CPUS - 1)] = address;
	return 0;
}

/* ---- the socket queue ---- */

/* Store a datagram's queueing time t_stack. Return false if the datagram is unknown or already has t_stack. */
static __always_inline bool stamp_queued(__u64 skb, struct sock *sk, __u64 now)
{
	struct packet *packet = find_packet(skb);
	struct payload *payload;
	__u32 rmem;

	if (!packet || packet->t_stack)
		return false;
	COUNT(queued);
	rmem = sk->sk_backlog.rmem_alloc.counter;
	packet->t_stack = now;
	packet->rmem = rmem;
	if (cfg_exact)
		return true;
	if (packet->payload_index) {
		payload = &payloads[(packet->payload_index - 1) & (PAYLOAD_SETS * WAYS - 1)];
		if (payload->used && payload->t_arr == packet->t_arr) {
			payload->rmem = rmem;
			payload->t_stack = now;
		}
	}
	packet->skb = 0; /* free the entry, because the receive call finds the datagram by its payload */
	return true;
}

/*
 * Visit the queue from its tail to the first datagram that already has t_stack. The walk is necessary, because the kernel
 * may call sk_data_ready once for several datagrams (list receive, and since Linux 6.18 also the producers' queue).
 */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_data_ready, struct sock *sk)
{
	struct sk_buff *skb;
	bool stamped = false;
	__u64 now;

	if (!socket_is_ours(sk))
		return 0;
	now = bpf_ktime_get_ns();
	skb = sk->sk_receive_queue.prev;
	for (int i = 0; i < QUEUE_WALK_MAX; i++) {
		if (!skb || (void *)skb == (void *)&sk->sk_receive_queue)
			break;
		if (!stamp_queued(address_of(skb), sk, now))
			break;
		stamped = true;
		skb = skb->prev;
	}
	/* If the walk found no new datagram, a reader on another CPU has already taken the datagram at last_skb. */
	if (!stamped)
		stamp_queued(last_skb[bpf_get_smp_processor_id() & (PROBE_CPUS - 1)], sk, now);
	return 0;
}

SEC("fentry/__udp_enqueue_schedule_skb")
int BPF_PROG(on_enqueue, struct sock *sk, struct sk_buff *skb)
{
	__u64 address;

	if (!socket_is_ours(sk))
		return 0;
	address = address_of(skb);
	stamp_queued(address, sk, bpf_ktime_get_ns());
	last_skb[bpf_get_smp_processor_id() & (PROBE_CPUS - 1)] = address;
	return 0;
}

static __always_inline int on_taken(struct sock *sk, struct sk_buff *skb)
{
	__u64 address = address_of(skb);
	struct probe_worker *worker;
	struct packet *packet;

	if (!address || !socket_is_ours(sk))
		return 0;
	worker = worker_of(bpf_get_current_pid_tgid());
	if (!worker)
		return 0;
	worker->t_taken = bpf_ktime_get_ns();
	worker->taken = 1;
	worker->taken_t_arr = 0;
	worker->taken_t_stack = 0;
	packet = find_packet(address);
	if (packet && packet->t_stack) {
		worker->taken_t_arr = packet->t_arr;
		worker->taken_t_stack = packet->t_stack;
		worker->taken_rmem = packet->rmem;
		packet->skb = 0;
	}
	return 0;
}

/* Variant for Linux 5.19 and later, in which __skb_recv_udp has no argument `noblock`. */
SEC("fexit/__skb_recv_udp")
int BPF_PROG(on_dequeue, struct sock *sk, unsigned int flags, int *off, int *err, struct sk_buff *skb)
{
	return on_taken(sk, skb);
}

SEC("fexit/__skb_recv_udp")
int BPF_PROG(on_dequeue_noblock, struct sock *sk, unsigned int flags, int noblock, int *off, int *err,
	     struct sk_buff *skb)
{
	return on_taken(sk, skb);
}

/* ---- drops ---- */

static __always_inline __u64 forget_packet(__u64 skb)
{
	struct packet *packet = find_packet(skb);
	struct payload *payload;

	if (!packet)
		return 0;
	if (packet->payload_index) {
		payload = &payloads[(packet->payload_index - 1) & (PAYLOAD_SETS * WAYS - 1)];
		if (payload->t_arr == packet->t_arr)
			payload->used = 0;
	}
	/* In exact mode, on_enqueue counted the datagram before the kernel refused it, so correct the counter. */
	if (packet->t_stack)
		COUNT_BY(queued, -1);
	packet->skb = 0;
	return packet->t_arr;
}

/* Copy the start of the refused datagram, found by the transport header, because skb->data is not reliable. */
static __always_inline void copy_refused(struct probe_drop *drop, __u64 address)
{
	struct sk_buff *skb = (struct sk_buff *)address;
	__u32 transport_header = BPF_CORE_READ(skb, transport_header);
	unsigned char *udp = BPF_CORE_READ(skb, head) + transport_header;
	__u32 ahead = transport_header + sizeof(struct udphdr);
	/* on 64-bit machines, tail is an offset from head, as transport_header is, so both can be compared */
	__u32 linear_end = BPF_CORE_READ(skb, tail);
	struct udphdr header;
	__u32 size;

	if (bpf_probe_read_kernel(&header, sizeof(header), udp) || linear_end < ahead)
		return;
	drop->length = bpf_ntohs(header.len) - sizeof(header);
	size = linear_end - ahead;
	if (size > drop->length)
		size = drop->length;
	if (size > cfg_snippet)
		size = cfg_snippet;
	size &= 2 * PROBE_SNIPPET_MAX - 1;
	if (size > PROBE_SNIPPET_MAX)
		return;
	if (!bpf_probe_read_kernel(drop->payload, size, udp + sizeof(header)))
		drop->snippet = size;
}

static __always_inline struct probe_drop *new_drop(int rc, struct sock *sk, __u64 skb)
{
	struct probe_drop *drop;
	__u64 t_arr = forget_packet(skb);

	if (!t_arr && may_be_older(bpf_ktime_get_ns(), false))
		return NULL;
	COUNT(refused);
	drop = bpf_ringbuf_reserve(&ring, sizeof(*drop), 0);
	if (!drop) {
		COUNT(lost_ring);
		return NULL;
	}
	drop->event = PROBE_EVENT_DROP;
	drop->reason = -rc;
	drop->t_arr = t_arr;
	drop->t_refused = bpf_ktime_get_ns();
	drop->rmem = sk->sk_backlog.rmem_alloc.counter;
	drop->cpu = bpf_get_smp_processor_id();
	drop->length = 0;
	drop->snippet = 0;
	return drop;
}

/* Variant for kernels before Linux 6.10, whose tracepoint has no argument `skb`: take the address from last_skb. */
SEC("tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(on_refused_no_skb, int rc, struct sock *sk)
{
	struct probe_drop *drop;
	__u64 address;

	if (!socket_is_ours(sk))
		return 0;
	address = last_skb[bpf_get_smp_processor_id() & (PROBE_CPUS - 1)];
	drop = new_drop(rc, sk, address);
	if (!drop)
		return 0;
	/*
	 * In exact mode, the hook on_enqueue has just stored the refused datagram in last_skb of this CPU. In
	 * tracepoint mode, last_skb may be another datagram, so do not copy its bytes.
	 */
	if (cfg_exact)
		copy_refused(drop, address);
	bpf_ringbuf_submit(drop, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/udp_fail_queue_rcv_skb")
int BPF_PROG(on_refused, int rc, struct sock *sk, struct sk_buff *skb)
{
	struct probe_drop *drop;

	if (!socket_is_ours(sk))
		return 0;
	drop = new_drop(rc, sk, address_of(skb));
	if (!drop)
		return 0;
	copy_refused(drop, address_of(skb));
	bpf_ringbuf_submit(drop, BPF_RB_NO_WAKEUP);
	return 0;
}

/* ---- system calls ---- */

/* Write the record of a message when its worker asks for the next message. User space polls, so wake no process. */
static __always_inline void end_service(struct probe_worker *worker)
{
	struct probe_message *message = &worker->message;
	__u32 size =
		offsetof(struct probe_message, payload) + (message->snippet & (2 * PROBE_SNIPPET_MAX - 1));

	worker->in_service = 0;
	if (size > sizeof(*message))
		size = sizeof(*message);
	if (bpf_ringbuf_output(&ring, message, size, BPF_RB_NO_WAKEUP))
		COUNT(lost_ring);
}

static __always_inline void enter_receive(struct probe_worker *worker, struct pt_regs *regs, __u64 now)
{
	if (worker->in_service) {
		/* A read from another socket, such as a DNS answer, does not end the service of the current message. */
		if (!descriptor_is_of(worker, ARG_FD(regs)))
			return;
		end_service(worker);
	}
	worker->t_recv_enter = now;
	worker->taken = 0;
	worker->sending = 0; /* a failed send produces no packet, so expect no departure */
}

static __always_inline void enter_send(struct probe_worker *worker, struct pt_regs *regs, long id, __u64 now)
{
	struct probe_message *message = &worker->message;
	struct probe_send *send;
	__u32 index;

	/* Ignore sends to other sockets, such as the sockets of the log and the resolver. */
	if (!worker->in_service || !descriptor_is_of(worker, ARG_FD(regs)))
		return;
	COUNT(sent);
	index = message->n_send;
	message->n_send = index + 1;
	if (index >= PROBE_SENDS) {
		message->flags |= PROBE_FLAG_MORE_SENDS;
		return;
	}
	send = &message->send[index & (PROBE_SENDS - 1)];
	send->t_sip_out = now;
	send->t_dep = 0;
	send->off_cpu_ns = worker->off_cpu_ns;
	send->switches = worker->switches;
	if (bpf_probe_read_user(send->head, sizeof(send->head), user_buffer(regs, id)))
		__builtin_memset(send->head, 0, sizeof(send->head));
	worker->sending = index + 1;
	send->out_cost_ns = bpf_ktime_get_ns() - now;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
	struct probe_worker *worker;
	__u64 now;

	if (id < NR_SENDTO || id > NR_RECVMSG)
		return 0;
	worker = worker_of(bpf_get_current_pid_tgid());
	if (!worker)
		return 0;
	now = bpf_ktime_get_ns();
	if (is_receive(id))
		enter_receive(worker, regs, now);
	else if (is_send(id))
		enter_send(worker, regs, id, now);
	return 0;
}

/* Return the first time from t on when the worker was on a CPU, because a worker off the CPU takes no datagram. */
static __always_inline __u64 running_since(const struct probe_worker *worker, __u64 t)
{
	for (__u32 i = 1; i <= PROBE_SEGMENTS; i++) {
		/* Visit the periods in which the worker was on a CPU, beginning with the oldest stored period. */
		__u32 segment = (worker->segment + i) & (PROBE_SEGMENTS - 1);
		__u64 on = worker->on[segment];
		__u64 off = worker->off[segment];

		if (on && (!off || off > t))
			return on > t ? on : t;
	}
	return t;
}

/* Return 1 + the index of the oldest waiting datagram with this fingerprint, or 0 if no such datagram exists. */
__noinline __u32 find_payload(__u64 fingerprint)
{
	__u32 base = (fingerprint & (PAYLOAD_SETS - 1)) * WAYS;
	__u64 oldest = ~0ULL;
	__u32 found = 0;

	for (__u32 i = 0; i < WAYS; i++) {
		__u32 index = (base + i) & (PAYLOAD_SETS * WAYS - 1);
		struct payload *payload = &payloads[index];

		if (payload->used && payload->fingerprint == fingerprint && payload->t_arr < oldest &&
		    payload->t_arr >= since_ns) {
			oldest = payload->t_arr;
			found = index + 1;
		}
	}
	return found;
}

/*
 * Find the arrival that has the fingerprint of the message's payload, and copy the times of the arrival to the message.
 * Return false if no arrival has this fingerprint.
 */
static __always_inline bool match_payload(struct probe_message *message)
{
	__u32 found = find_payload(fingerprint_of((__u64 *)message->payload, message->length));
	struct payload *payload = &payloads[(found - 1) & (PAYLOAD_SETS * WAYS - 1)];

	if (!found)
		return false;
	message->t_arr = payload->t_arr;
	message->t_stack = payload->t_stack;
	message->rmem = payload->rmem;
	message->flags = payload->flags;
	payload->used = 0;
	/*
	 * The worker may receive the datagram before another CPU runs the hook that sets t_stack (the queueing time).
	 * In this case, t_stack is missing or later than t_sip_in, so use t_arr (the arrival time) instead.
	 */
	if (!message->t_stack || message->t_stack > message->t_sip_in) {
		message->flags |= PROBE_FLAG_NO_STACK;
		message->t_stack = message->t_arr;
	}
	return true;
}

static __always_inline bool match_taken(const struct probe_worker *worker, struct probe_message *message)
{
	if (!worker->taken_t_arr)
		return false;
	message->t_arr = worker->taken_t_arr;
	message->t_stack = worker->taken_t_stack;
	message->t_sockq = worker->t_taken;
	message->rmem = worker->taken_rmem;
	return true;
}

static __always_inline void bound_sockq(const struct probe_worker *worker, struct probe_message *message)
{
	__u64 earliest = message->t_stack;

	if (worker->t_recv_enter > earliest)
		earliest = worker->t_recv_enter;
	message->t_sockq = running_since(worker, earliest);
	message->flags |= PROBE_FLAG_SOCKQ_BOUND;
}

static __always_inline bool copy_received(struct probe_message *message, struct pt_regs *regs, long id,
					  __u32 length)
{
	__u32 size = length < cfg_snippet ? length : cfg_snippet;

	message->length = length;
	if (size < PROBE_FINGERPRINT_BYTES)
		__builtin_memset(message->payload, 0, PROBE_FINGERPRINT_BYTES);
	size &= 2 * PROBE_SNIPPET_MAX - 1;
	if (size > PROBE_SNIPPET_MAX)
		return false;
	message->snippet = size;
	return !bpf_probe_read_user(message->payload, size, user_buffer(regs, id));
}

static __always_inline void exit_receive(struct probe_worker *worker, struct pt_regs *regs, long id,
					 long length, __u64 now)
{
	struct probe_message *message = &worker->message;
	int fd = ARG_FD(regs);

	/*
	 * Ignore a read from another socket. During a service, enter_receive has ended the service unless the read is from
	 * another socket. In exact mode, on_taken has set `taken` if the read is from a socket of the port.
	 */
	if (worker->in_service || (cfg_exact && !worker->taken))
		return;
	message->t_arr = 0;
	message->t_stack = 0;
	message->t_sockq = 0;
	message->t_sip_in = now;
	message->rmem = 0;
	message->flags = 0;
	message->n_send = 0;
	if (!copy_received(message, regs, id, length))
		message->snippet = 0;
	if (cfg_exact ? match_taken(worker, message) : match_payload(message)) {
		worker->behind = 0;
		if (!cfg_exact)
			bound_sockq(worker, message);
	} else {
		if (!cfg_exact && !descriptor_is_of(worker, fd))
			return;
		if (may_be_older(now, worker->behind))
			return;
		COUNT(unmatched);
		message->flags = PROBE_FLAG_UNMATCHED;
	}
	COUNT(received);
	worker->fd = fd;
	worker->service++;
	worker->sending = 0;
	worker->off_cpu_ns = 0;
	worker->switches = 0;
	worker->in_service = 1;
	message->event = PROBE_EVENT_MESSAGE;
	message->tid = worker->tid;
	message->cpu = bpf_get_smp_processor_id();
	message->in_cost_ns = bpf_ktime_get_ns() - now;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	long id = SYSCALL_OF(regs);
	struct probe_worker *worker;

	if (!is_receive(id) || result < 0)
		return 0;
	worker = worker_of(bpf_get_current_pid_tgid());
	if (worker)
		exit_receive(worker, regs, id, result, bpf_ktime_get_ns());
	return 0;
}

/* ---- departure ---- */

static __always_inline struct departure *departure_of(__u64 skb)
{
	return &departures[(skb >> 6 ^ skb >> 18) & (DEPARTURES - 1)];
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_device_queue, struct sk_buff *skb)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct probe_worker *worker = worker_of(tid);
	struct sock *sk = skb->sk;
	struct departure *departure;
	__u64 address;

	if (!worker || !worker->sending)
		return 0;
	/* An interrupt may send another packet in the worker's context, so check that the socket belongs to the port. */
	if (!sk || !socket_is_ours(sk))
		return 0;
	address = address_of(skb);
	departure = departure_of(address);
	departure->slot = slot_of_tid[tid & (PROBE_TID_SLOTS - 1)];
	departure->service = worker->service;
	departure->index = worker->sending - 1;
	departure->skb = address;
	worker->sending = 0;
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_start_xmit, struct sk_buff *skb)
{
	__u64 address = address_of(skb);
	struct departure *departure = departure_of(address);
	struct probe_worker *worker;
	struct probe_send *send;
	__u32 slot;

	if (departure->skb != address)
		return 0;
	departure->skb = 0;
	slot = departure->slot;
	if (!slot)
		return 0;
	worker = &workers[(slot - 1) & (PROBE_WORKERS - 1)];
	/* Ignore a departure if a queueing discipline delayed the packet until the worker served the next message. */
	if (worker->service != departure->service)
		return 0;
	send = &worker->message.send[departure->index & (PROBE_SENDS - 1)];
	if (!send->t_dep)
		send->t_dep = bpf_ktime_get_ns();
	return 0;
}

/* ---- time off CPU ---- */

static __always_inline void switch_out(struct probe_worker *worker, __u64 now)
{
	worker->t_switched_out = now;
	worker->off[worker->segment & (PROBE_SEGMENTS - 1)] = now;
}

static __always_inline void switch_in(struct probe_worker *worker, __u64 now)
{
	worker->segment++;
	worker->on[worker->segment & (PROBE_SEGMENTS - 1)] = now;
	worker->off[worker->segment & (PROBE_SEGMENTS - 1)] = 0;
	if (worker->t_switched_out) {
		worker->off_cpu_ns += now - worker->t_switched_out;
		worker->switches++;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct probe_worker *from = worker_of(prev->pid);
	struct probe_worker *to = worker_of(next->pid);
	__u64 now = 0;

	if (from) {
		now = bpf_ktime_get_ns();
		switch_out(from, now);
	}
	if (to)
		switch_in(to, now ? now : bpf_ktime_get_ns());
	return 0;
}
