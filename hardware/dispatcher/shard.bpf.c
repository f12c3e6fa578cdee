// SPDX-License-Identifier: GPL-2.0
/*
 * This BPF program chooses the socket for each datagram among the sockets of one port, by a key of the SIP message. The
 * key is the Call-ID (RFC 3261 20.8), or the user or the domain of the URI in the To header (20.39).
 *
 * With the Call-ID as key, all messages of a call reach the same socket, whether the UAC or the UAS sends them. With a
 * key from the To header, requests that the callee sends within a dialog can reach another socket, because the To header
 * of these requests names the caller (12.2.1.1).
 *
 * The socket's number is a hash of the key modulo the number of sockets. The hash is FNV-1a over the key. Blanks in a
 * Call-ID do not count. A message without the key goes to socket 0. The program drops a message whose socket is closed,
 * because another instance of the proxy does not know the message's call.
 *
 * The search for line ends reads eight bytes at a time, because most groups of eight bytes contain no line end. The program
 * needs bpf_loop (Linux 5.17).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "shard.h"

#define UDP_HEADER   8
#define WORD         8
#define STEP         64
#define HASH_STEP    16
#define VALUE_MAX    256 /* the program reads at most this many bytes of the header */
#define SPARE        16  /* extra bytes after the copied message, so that reads stay within the buffer */
#define NEWLINES     0x0a0a0a0a0a0a0a0aULL
#define LOW_BITS     0x0101010101010101ULL
#define HIGH_BITS    0x8080808080808080ULL
#define BYTE_NUMBERS 0x0001020304050607ULL
#define FNV_BASIS    2166136261U
#define FNV_PRIME    16777619U

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 n_sockets = 1;
const volatile enum shard_key key = SHARD_BY_CALL_ID;

/*
 * The parts of a To header, such as `To: "Bob" <sip:bob@example.org:5060>;tag=1`. The URI starts after the second colon
 * outside quotes. The first part of the URI is the user. If the URI has no user, the first part is the domain, or a
 * telephone number.
 */
enum part {
	HEADER_NAME, /* before the first colon */
	SCHEME,      /* before the second colon, with a display name before the URI */
	QUOTED,      /* within the quotes of a display name */
	ESCAPED,     /* after a backslash within the quotes */
	FIRST_PART,
	SKIPPED, /* between the first part and the domain, such as a password */
	DOMAIN,
};

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, SHARDS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shard_counts);
} counts SEC(".maps");

struct head {
	char bytes[HEAD_BYTES + VALUE_MAX + SPARE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct head);
} heads SEC(".maps");

struct search {
	struct head *head;
	__u32 size;
	__u32 value; /* offset after the name of the header with the key; 0 if the header is not found */
	__u32 hash;
	enum part part; /* unused if the key is the Call-ID */
};

static __always_inline char lower(char c)
{
	return c | 0x20;
}

static __always_inline bool ends_name(char c)
{
	return c == ':' || c == ' ';
}

/* Return the offset after the header's name if the header with the key follows the line end at `at`, otherwise 0. */
static __always_inline __u32 value_after(const struct head *head, __u32 at)
{
	const char *line;

	at &= HEAD_BYTES - 1;
	if (head->bytes[at] != '\n')
		return 0;
	line = head->bytes + at + 1;
	if (key != SHARD_BY_CALL_ID) {
		if (lower(line[0]) == 't' && ends_name(line[1]))
			return at + 2;
		if (lower(line[0]) == 't' && lower(line[1]) == 'o' && ends_name(line[2]))
			return at + 3;
		return 0;
	}
	if (lower(line[0]) == 'i' && ends_name(line[1]))
		return at + 2;
	if (lower(line[0]) == 'c' && lower(line[1]) == 'a' && lower(line[2]) == 'l' &&
	    lower(line[3]) == 'l' && line[4] == '-' && lower(line[5]) == 'i' && lower(line[6]) == 'd' &&
	    ends_name(line[7]))
		return at + 8;
	return 0;
}

/*
 * Search the eight bytes at `at` for the line end before the header with the key. If the line end is found, store the
 * offset after the header's name in `search` and return true.
 */
static __always_inline bool find_in_word(struct search *search, __u32 at)
{
	__u64 word = *(__u64 *)(search->head->bytes + at) ^ NEWLINES;
	__u64 ends = (word - LOW_BITS) & ~word & HIGH_BITS;

	/* the formula can also set a bit for the byte after a newline, so value_after() checks each byte again */
	for (__u32 i = 0; i < WORD && ends; i++) {
		/*
		 * the multiplication puts the position of the newline's byte within the word into the product's top
		 * byte
		 */
		__u32 here = at + (((ends & -ends) >> 7) * BYTE_NUMBERS >> 56);

		ends &= ends - 1;
		search->value = value_after(search->head, here);
		if (search->value)
			return true;
	}
	return false;
}

static long find_in_step(__u32 index, void *context)
{
	struct search *search = context;
	__u32 first = index * STEP & (HEAD_BYTES - 1);

	if (first >= search->size)
		return 1;
	for (__u32 at = 0; at < STEP; at += WORD)
		if (find_in_word(search, first + at))
			return 1;
	return 0;
}

static __always_inline void add_to_hash(struct search *search, char c)
{
	search->hash = (search->hash ^ (__u8)c) * FNV_PRIME;
}

/* Read the next byte of a To header, and add the byte to the hash if the key has it. Return true at the key's end. */
static __always_inline bool read_to(struct search *search, char c)
{
	switch (search->part) {
	case HEADER_NAME:
		if (c == ':')
			search->part = SCHEME;
		return false;
	case SCHEME:
		if (c == '"')
			search->part = QUOTED;
		else if (c == ':')
			search->part = FIRST_PART;
		return false;
	case QUOTED:
		if (c == '\\')
			search->part = ESCAPED;
		else if (c == '"')
			search->part = SCHEME;
		return false;
	case ESCAPED:
		search->part = QUOTED;
		return false;
	default:
		break;
	}
	if (c == '>' || c == ' ' || c == '\t')
		return true;
	if (c == '@' && key == SHARD_BY_DOMAIN && search->part != DOMAIN) {
		search->hash = FNV_BASIS;
		search->part = DOMAIN;
		return false;
	}
	if (c == '@' || c == ':' || c == ';' || c == '?') {
		if (key == SHARD_BY_USER || search->part == DOMAIN)
			return true;
		search->part = SKIPPED;
		return false;
	}
	/* the case of a domain does not matter, but the case of a user does (RFC 3261 19.1.4) */
	if (search->part != SKIPPED)
		add_to_hash(search, key == SHARD_BY_DOMAIN ? lower(c) : c);
	return false;
}

/* Read the next HASH_STEP bytes of the header, and add the bytes of the key to the hash. */
static long hash_step(__u32 index, void *context)
{
	struct search *search = context;
	__u64 first = (__u64)search->value + index * HASH_STEP;

	/* compare the offset with the bound, because the BPF verifier would otherwise reject the access below */
	asm volatile("" : "+r"(first));
	if (first >= HEAD_BYTES + VALUE_MAX - HASH_STEP)
		return 1;
	for (__u32 i = 0; i < HASH_STEP; i++) {
		char c = search->head->bytes[first + i];

		if (c == '\r' || c == '\n' || first + i >= search->size)
			return 1;
		if (key != SHARD_BY_CALL_ID) {
			if (read_to(search, c))
				return 1;
		} else if (c != ' ' && c != '\t' && !(c == ':' && search->hash == FNV_BASIS)) {
			add_to_hash(search, c);
		}
	}
	return 0;
}

/* Copy at most HEAD_BYTES bytes of the message into `search`. Return false for an empty message or a failed copy. */
static __always_inline bool load_head(struct sk_reuseport_md *message, struct search *search)
{
	__u32 size = message->len;

	if (size <= UDP_HEADER)
		return false;
	size -= UDP_HEADER;
	if (size > HEAD_BYTES)
		size = HEAD_BYTES;
	/*
	 * leave the size unchanged, but show the BPF verifier that the size is at least 1, which the verifier of Linux
	 * 6.1 does not learn from comparisons
	 */
	asm volatile("" : "+r"(size));
	size = ((size - 1) & (HEAD_BYTES - 1)) + 1;
	if (bpf_skb_load_bytes(message, UDP_HEADER, search->head->bytes, size))
		return false;
	search->size = size;
	return true;
}

SEC("sk_reuseport")
int sipshard(struct sk_reuseport_md *message)
{
	struct search search = { .hash = FNV_BASIS };
	__u32 zero = 0, socket = 0;
	bool has_key = false;
	struct shard_counts *count = bpf_map_lookup_elem(&counts, &zero);

	search.head = bpf_map_lookup_elem(&heads, &zero);
	if (!count || !search.head)
		return SK_PASS;
	if (load_head(message, &search))
		bpf_loop(HEAD_BYTES / STEP, find_in_step, &search, 0);
	/* the buffer may contain bytes of an earlier, longer message after the end of this message */
	if (search.value && search.value < search.size) {
		bpf_loop(VALUE_MAX / HASH_STEP, hash_step, &search, 0);
		has_key = key == SHARD_BY_CALL_ID || search.part >= FIRST_PART;
	}
	if (has_key)
		socket = (search.hash ^ search.hash >> 16) % n_sockets;
	else
		count->without_key++;
	if (bpf_sk_select_reuseport(message, &sockets, &socket, 0)) {
		count->gone++;
		return SK_DROP;
	}
	if (socket < SHARDS_MAX)
		count->selected[socket]++;
	return SK_PASS;
}
