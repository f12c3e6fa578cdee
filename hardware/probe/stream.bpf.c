// SPDX-License-Identifier: GPL-2.0
/*
 * These programs take the timestamps of SIP over TCP, from which streams.c makes records. The kernel and the proxy need no change.
 *
 * t_arr      netif_rx, napi_gro_receive_entry, netif_receive_skb_entry, netif_receive_skb: the earliest of these events
 * t_stack    tcp_probe: the connection accepts the segment, or, while a process locks the socket, at the unlock
 * t_sockq    tcp_rcv_space_adjust: a read has copied bytes from the queue
 * t_sip_in   sys_exit of the read
 * t_sip_out  sys_enter of the write
 * t_dep      net_dev_start_xmit
 *
 * Each hook sends the TCP sequence numbers of the bytes that pass the hook to user space. The hooks of reads and writes
 * also send the bytes. User space combines these events, because a message may span several segments and reads, and a
 * segment or read may hold several messages.
 */
#include "common.bpf.h"

const volatile __u16 cfg_peer_port = 5060;

extern const volatile bool cfg_ipv6; /* true: the probe also traces connections over IPv6 */

#define PROTOCOL_TCP  6
#define FAMILY_IPV4   2
#define FAMILY_IPV6   10
#define ESTABLISHED   1
#define CLOSED        7
#define SOL_SOCKET    1
#define SCM_RIGHTS    1
#define HANDED_UP     4096
#define SEGMENT_BYTES (sizeof(struct probe_segment))

struct headers_ipv4 {
	struct iphdr ip;
	struct tcphdr tcp;
};

struct headers_ipv6 {
	struct ipv6hdr ip;
	struct tcphdr tcp;
};

/* The parts of a segment's headers that the probe needs. */
struct stream_headers {
	__u32 source; /* addresses in network byte order, as in struct probe_connection; IPv6 addresses are hashed */
	__u32 destination;
	__u32 ahead; /* number of bytes of the IP header */
	__u32 total; /* number of bytes of the packet, or 0 if the packet is too long for the header's length field */
	struct tcphdr tcp;
};

/* A segment that the driver has handed up, and that the protocol layer has not received yet. */
struct handed_up {
	__u64 skb;
	__u32 seq;
	__u32 padding;
};

extern struct ring ring SEC(".maps");

static struct handed_up handed_up[HANDED_UP];
static struct probe_transfer transfers[PROBE_WORKERS]; /* each worker writes only its own entry */

/* ---- segments ---- */

static __always_inline void emit_segment(struct probe_segment *segment)
{
	if (bpf_ringbuf_output(&ring, segment, SEGMENT_BYTES, BPF_RB_NO_WAKEUP))
		COUNT(lost_ring);
}

/* Return a 32-bit hash of an IPv6 address. Two connections with equal ports hardly ever have equal hashes. */
static __always_inline __u32 folded(const struct in6_addr *address)
{
	const __u32 *words = address->in6_u.u6_addr32;
	__u32 number = words[0];

	number = number * 0x9E3779B1 ^ words[1];
	number = number * 0x9E3779B1 ^ words[2];
	return number * 0x9E3779B1 ^ words[3];
}

/* Read the headers of a packet. Return false if the packet holds no TCP segment. */
static __always_inline bool read_headers(struct sk_buff *skb, const void *at, struct stream_headers *headers)
{
	struct headers_ipv4 four;
	struct headers_ipv6 six;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		/* ASSUME packets with SIP have no IP options and are not fragmented: the TCP header has a fixed offset */
		if (bpf_probe_read_kernel(&four, sizeof(four), at) || four.ip.protocol != PROTOCOL_TCP ||
		    four.ip.ihl != 5)
			return false;
		headers->source = four.ip.saddr;
		headers->destination = four.ip.daddr;
		headers->ahead = sizeof(four.ip);
		headers->total = bpf_ntohs(four.ip.tot_len);
		headers->tcp = four.tcp;
		return true;
	}
	/* ASSUME packets with SIP have no IPv6 extension headers, so the TCP header follows directly */
	if (bpf_probe_read_kernel(&six, sizeof(six), at) || six.ip.nexthdr != PROTOCOL_TCP)
		return false;
	headers->source = folded(&six.ip.saddr);
	headers->destination = folded(&six.ip.daddr);
	headers->ahead = sizeof(six.ip);
	headers->total = bpf_ntohs(six.ip.payload_len);
	if (headers->total)
		headers->total += sizeof(six.ip);
	headers->tcp = six.tcp;
	return true;
}

static __always_inline bool may_be_ours(struct sk_buff *skb)
{
	return is_from_network(skb) || (cfg_ipv6 && skb->protocol == bpf_htons(ETHERTYPE_IPV6) &&
					skb->dev->nd_net.net->ns.inum == cfg_netns);
}

/* Return a segment's number of data bytes. `room` is the packet's size in bytes, beginning with the IP header. */
static __always_inline __u32 segment_bytes(const struct stream_headers *headers, __u32 room)
{
	__u32 ahead = headers->ahead + headers->tcp.doff * 4;
	__u32 total = headers->total ? headers->total : room;

	return total > ahead ? total - ahead : 0;
}

static __always_inline int on_stream_driver(struct sk_buff *skb, bool protocol_layer)
{
	struct probe_segment segment = { .event = PROBE_EVENT_ARRIVED };
	struct stream_headers headers;
	struct handed_up *before;
	__u64 address;

	if (!may_be_ours(skb) || !read_headers(skb, skb->data, &headers))
		return 0;
	segment.length = segment_bytes(&headers, skb->len);
	if (!segment.length ||
	    (!port_is_ours(bpf_ntohs(headers.tcp.dest)) && headers.tcp.source != bpf_htons(cfg_peer_port)))
		return 0;
	segment.seq = bpf_ntohl(headers.tcp.seq);
	address = address_of(skb);
	before = &handed_up[(address >> 6 ^ address >> 18) & (HANDED_UP - 1)];
	if (protocol_layer) {
		/* Ignore the segment, because a hook in the driver has already reported the segment. */
		if (before->skb == address && before->seq == segment.seq) {
			before->skb = 0;
			return 0;
		}
	} else {
		before->seq = segment.seq;
		before->skb = address;
	}
	segment.t = bpf_ktime_get_ns();
	segment.connection.local = headers.destination;
	segment.connection.remote = headers.source;
	segment.connection.local_port = bpf_ntohs(headers.tcp.dest);
	segment.connection.remote_port = bpf_ntohs(headers.tcp.source);
	emit_segment(&segment);
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(on_stream_netif_rx, struct sk_buff *skb)
{
	return on_stream_driver(skb, false);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(on_stream_gro_receive, struct sk_buff *skb)
{
	return on_stream_driver(skb, false);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(on_stream_receive_entry, struct sk_buff *skb)
{
	return on_stream_driver(skb, false);
}

/* Every received packet passes the tracepoint netif_receive_skb exactly once, with any driver. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_stream_receive, struct sk_buff *skb)
{
	return on_stream_driver(skb, true);
}

/*
 * Store the hashed IPv6 addresses in `connection`. If the peer of an IPv6 socket uses IPv4, keep the IPv4 addresses that
 * `connection` already has. Return false if the probe does not trace connections over IPv6.
 */
static __always_inline bool store_ipv6(struct sock *sk, struct probe_connection *connection)
{
	struct in6_addr local = {}, remote = {};
	const __u32 *words = remote.in6_u.u6_addr32;

	if (!cfg_ipv6 || BPF_CORE_READ_INTO(&local, sk, __sk_common.skc_v6_rcv_saddr) ||
	    BPF_CORE_READ_INTO(&remote, sk, __sk_common.skc_v6_daddr))
		return false;
	if (!words[0] && !words[1] && words[2] == bpf_htonl(0xFFFF))
		return true;
	connection->local = folded(&local);
	connection->remote = folded(&remote);
	return true;
}

/* Read the addresses and ports of a connection. Return false if the probe does not trace the connection. */
static __always_inline bool identify(struct sock *sk, __u16 local_port, struct probe_connection *connection)
{
	connection->local_port = local_port;
	connection->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (!port_is_ours(connection->local_port) && connection->remote_port != cfg_peer_port)
		return false;
	connection->local = sk->__sk_common.skc_rcv_saddr;
	connection->remote = sk->__sk_common.skc_daddr;
	if (sk->__sk_common.skc_net.net->ns.inum != cfg_netns)
		return false;
	return sk->__sk_common.skc_family == FAMILY_IPV4 ||
	       (sk->__sk_common.skc_family == FAMILY_IPV6 && store_ipv6(sk, connection));
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(on_stream_queued, struct sock *sk, struct sk_buff *skb)
{
	struct probe_segment segment = { .event = PROBE_EVENT_QUEUED };
	struct {
		__u32 seq;
		__u32 end;
	} bytes; /* the first members of struct tcp_skb_cb: sequence numbers of the segment's start and end */

	if (!identify(sk, sk->__sk_common.skc_num, &segment.connection) ||
	    bpf_probe_read_kernel(&bytes, sizeof(bytes), skb->cb))
		return 0;
	segment.seq = bytes.seq;
	segment.length = bytes.end - bytes.seq;
	if (!segment.length)
		return 0;
	segment.rmem = sk->sk_backlog.rmem_alloc.counter;
	segment.t = bpf_ktime_get_ns();
	emit_segment(&segment);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_stream_departed, struct sk_buff *skb)
{
	struct probe_segment segment = { .event = PROBE_EVENT_DEPARTED };
	struct stream_headers headers;
	__u64 ahead;

	if (!may_be_ours(skb))
		return 0;
	segment.t = bpf_ktime_get_ns();
	ahead = skb->head + skb->network_header - skb->data;
	if (!read_headers(skb, skb->head + skb->network_header, &headers))
		return 0;
	segment.length = segment_bytes(&headers, skb->len - (__u32)ahead);
	if (!segment.length ||
	    (!port_is_ours(bpf_ntohs(headers.tcp.source)) && headers.tcp.dest != bpf_htons(cfg_peer_port)))
		return 0;
	segment.seq = bpf_ntohl(headers.tcp.seq);
	segment.connection.local = headers.source;
	segment.connection.remote = headers.destination;
	segment.connection.local_port = bpf_ntohs(headers.tcp.source);
	segment.connection.remote_port = bpf_ntohs(headers.tcp.dest);
	emit_segment(&segment);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_stream_state, struct sock *sk, int before, int now)
{
	struct probe_segment segment = { .event = now == ESTABLISHED ? PROBE_EVENT_OPENED
								     : PROBE_EVENT_CLOSED };

	if ((now != ESTABLISHED && now != CLOSED) || sk->sk_protocol != PROTOCOL_TCP)
		return 0;
	/* Read the local port from inet_sport, because the kernel has already cleared skc_num of a closed socket. */
	if (!identify(sk, bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport)), &segment.connection))
		return 0;
	segment.t = bpf_ktime_get_ns();
	emit_segment(&segment);
	return 0;
}

/* ---- reads and writes ---- */

static __always_inline bool is_read(long id)
{
	return id == NR_READ || id == NR_READV || is_receive(id);
}

static __always_inline bool is_write(long id)
{
	return id == NR_WRITE || id == NR_WRITEV || is_send(id);
}

/*
 * Record the time at which a read has copied its bytes, and the position of the read's end in the stream. The reader
 * holds the socket's lock, so no other thread changes the position meanwhile.
 */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_stream_taken, struct sock *sk)
{
	struct probe_worker *worker = worker_of(bpf_get_current_pid_tgid());
	struct tcp_sock *tcp;

	if (!worker || !identify(sk, sk->__sk_common.skc_num, &worker->connection))
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	worker->position = tcp->copied_seq;
	worker->taken = 1;
	worker->t_taken = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_stream_call, struct pt_regs *regs, long id)
{
	struct probe_worker *worker;

	if (!is_read(id) && !is_write(id))
		return 0;
	worker = worker_of(bpf_get_current_pid_tgid());
	if (!worker)
		return 0;
	worker->taken = 0;
	worker->t_recv_enter = bpf_ktime_get_ns();
	return 0;
}

/*
 * Send the bytes of a system call to user space. The caller has set all members of `transfer` except for seq, length
 * and data.
 */
static __always_inline void emit_transfer(struct probe_transfer *transfer, struct pt_regs *regs, long id,
					  __u32 seq, __u64 length)
{
	struct iovec piece = user_piece(regs, id);
	__u64 size;

	/* ASSUME a worker uses one buffer per system call. The bytes of further buffers are a gap in the stream. */
	if (length > piece.iov_len)
		length = piece.iov_len;
	for (int i = 0; i < PROBE_PIECES && length; i++) {
		size = length < PROBE_PIECE ? length : PROBE_PIECE;
		/* Linux 5.10 and 6.1 need a check of the size itself, which the compiler would remove without the barrier. */
		barrier_var(size);
		if (size > PROBE_PIECE)
			return;
		transfer->call.seq = seq;
		transfer->call.length = size;
		if (bpf_probe_read_user(transfer->data, size, piece.iov_base))
			return;
		if (bpf_ringbuf_output(&ring, transfer, sizeof(struct probe_call) + size, BPF_RB_NO_WAKEUP))
			COUNT(lost_ring);
		seq += size;
		length -= size;
		piece.iov_base += size;
	}
}

static __always_inline struct probe_transfer *new_transfer(struct probe_worker *worker, __u32 event, __u64 t)
{
	struct probe_transfer *transfer = &transfers[worker->message.slot & (PROBE_WORKERS - 1)];

	transfer->call.event = event;
	transfer->call.tid = worker->tid;
	transfer->call.slot = worker->message.slot;
	transfer->call.t = t;
	transfer->call.cost_ns = worker->cost_ns;
	transfer->call.off_cpu_ns = worker->off_cpu_ns;
	transfer->call.switches = worker->switches;
	transfer->call.cpu = bpf_get_smp_processor_id();
	return transfer;
}

static __always_inline void exit_read(struct probe_worker *worker, struct pt_regs *regs, long id, long length,
				      __u64 now)
{
	struct probe_transfer *transfer;

	worker->taken = 0;
	worker->off_cpu_ns = 0;
	worker->switches = 0;
	worker->cost_ns = 0;
	transfer = new_transfer(worker, PROBE_EVENT_READ, now);
	transfer->call.t_taken = worker->t_taken;
	transfer->call.connection = worker->connection;
	emit_transfer(transfer, regs, id, worker->position - (__u32)length, length);
	worker->cost_ns = bpf_ktime_get_ns() - now;
}

/* Report a write to user space. Return false if the probe does not trace the connection of the write. */
static __always_inline bool exit_write(struct probe_worker *worker, struct pt_regs *regs, long id,
				       long length, __u64 entered, __u64 now)
{
	struct probe_transfer *transfer;
	struct probe_connection connection = {};
	struct sock *sk = socket_of(ARG_FD(regs));
	struct sock_common common;

	if (!sk || bpf_probe_read_kernel(&common, sizeof(common), &sk->__sk_common))
		return false;
	connection.local_port = common.skc_num;
	connection.remote_port = bpf_ntohs(common.skc_dport);
	if ((!port_is_ours(connection.local_port) && connection.remote_port != cfg_peer_port) ||
	    BPF_CORE_READ(sk, sk_protocol) != PROTOCOL_TCP)
		return false;
	connection.local = common.skc_rcv_saddr;
	connection.remote = common.skc_daddr;
	if (common.skc_family != FAMILY_IPV4 &&
	    (common.skc_family != FAMILY_IPV6 || !store_ipv6(sk, &connection)))
		return false;
	transfer = new_transfer(worker, PROBE_EVENT_WRITTEN, entered);
	transfer->call.connection = connection;
	/*
	 * ASSUME only one worker writes to a connection at a time. If several workers wrote at the same time, their
	 * messages would be mixed.
	 */
	emit_transfer(transfer, regs, id, BPF_CORE_READ((struct tcp_sock *)sk, write_seq) - (__u32)length,
		      length);
	worker->cost_ns += bpf_ktime_get_ns() - now;
	return true;
}

/* Return whether a system call on a Unix socket passed a file descriptor. */
static __always_inline bool passes_descriptor(struct pt_regs *regs)
{
	struct user_msghdr header = {};
	struct cmsghdr control = {};

	if (bpf_probe_read_user(&header, sizeof(header), (void *)ARG_BUFFER(regs)) ||
	    header.msg_controllen < sizeof(control) ||
	    bpf_probe_read_user(&control, sizeof(control), header.msg_control))
		return false;
	return control.cmsg_level == SOL_SOCKET && control.cmsg_type == SCM_RIGHTS;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_stream_return, struct pt_regs *regs, long result)
{
	long id = SYSCALL_OF(regs);
	struct probe_worker *worker;
	__u64 entered;
	__u64 now;

	if (!is_read(id) && !is_write(id))
		return 0;
	worker = worker_of(bpf_get_current_pid_tgid());
	if (!worker)
		return 0;
	/* `entered` is 0 if the system call began before the probe was attached. */
	entered = worker->t_recv_enter;
	worker->t_recv_enter = 0;
	if (result <= 0)
		return 0;
	now = bpf_ktime_get_ns();
	if (is_read(id) && worker->taken) {
		exit_read(worker, regs, id, result, now);
	} else if (is_write(id) && entered && exit_write(worker, regs, id, result, entered, now)) {
		return 0;
	} else if (id == NR_SENDMSG && passes_descriptor(regs)) {
		COUNT(descriptors_sent);
		COUNT_BY(descriptor_send_ns, entered ? now - entered : 0);
	} else if (id == NR_RECVMSG && passes_descriptor(regs)) {
		COUNT(descriptors_received);
		COUNT_BY(descriptor_receive_ns, entered ? now - entered : 0);
	}
	return 0;
}
