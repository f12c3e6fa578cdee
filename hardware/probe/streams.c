// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include "../common/frame.h"
#include "classify.h"
#include "streams.h"

/* ASSUME a worker that has not forwarded a message within this time will never forward the message. */
#define HOLD_NS   4000000000ULL
#define CLOSED_NS 2000000000ULL /* ASSUME a worker reads the rest of a closed connection within this time */
/*
 * ASSUME no data waits longer than this in a queue. Once recording has been on for this time, a message without a known
 * arrival therefore counts as unmatched. Before this time, the message may have arrived while recording was off.
 */
#define BEHIND_NS 1000000000ULL
/*
 * The limit that replaces BEHIND_NS after a worker has read a message with a known arrival on the connection. TCP
 * delivers data in order, so later data most probably arrived after recording began. ASSUME a segment takes at most
 * this time from the driver to its reader.
 */
#define UNDERWAY_NS 100000000ULL
#define SWEEP_NS    1000000000ULL
#define ROOM        1024
#define MARKS_MAX   65536

/* A segment that passed a hook: its sequence numbers and its time. */
struct mark {
	uint32_t seq;
	uint32_t end;
	uint64_t t;
	uint32_t rmem;
};

/* The segments of a connection that passed one hook, in the order of their times. */
struct marks {
	struct mark *at;
	size_t first;
	size_t n;
	size_t room;
};

/* One direction of a TCP stream, with the bytes that do not form a complete message yet. */
struct flow {
	bool synced;   /* `text` begins at the start of a message */
	uint32_t next; /* sequence number of the byte after `text` */
	char *text;
	size_t size;
	size_t room;
	struct probe_call began; /* the system call that read or wrote the first byte of `text` */
};

struct stream {
	struct stream *next;
	struct probe_connection connection;
	uint64_t t_closed; /* time at which the connection closed; 0: the connection is open */
	bool timed;        /* true: a worker has read a message with a known arrival; see UNDERWAY_NS */
	struct flow in;
	struct flow out;
	struct marks arrived;
	struct marks queued;
	struct marks departed;
	uint64_t undeparted; /* number of sent messages whose last segment has not departed */
};

struct waiting {
	struct trace_record record;
	uint64_t key;
	uint64_t older; /* 1 + position of the next older message in the hash bucket; 0: none */
	uint64_t service;
	uint32_t slot;
	bool sent;
	uint32_t last; /* sequence number of the last sent byte */
	struct probe_connection out;
};

static uint16_t saturate_u16(uint64_t value)
{
	return value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

static uint32_t saturate_u32(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Return whether sequence number a is before b. Sequence numbers wrap at 2^32. */
static bool is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

/* ---- marks ---- */

static void add_mark(struct marks *marks, const struct probe_segment *segment)
{
	if (marks->n == MARKS_MAX) {
		/* Forget the oldest segment. A connection has so many segments only if no worker reads its data. */
		marks->first++;
		marks->n--;
	}
	if (marks->first + marks->n == marks->room) {
		if (marks->n)
			memmove(marks->at, marks->at + marks->first, marks->n * sizeof(*marks->at));
		marks->first = 0;
		if (2 * marks->n >= marks->room) {
			marks->room = marks->room ? 2 * marks->room : 16;
			marks->at = must(realloc(marks->at, marks->room * sizeof(*marks->at)));
		}
	}
	marks->at[marks->first + marks->n] = (struct mark){
		.seq = segment->seq,
		.end = segment->seq + segment->length,
		.t = segment->t,
		.rmem = segment->rmem,
	};
	marks->n++;
}

/* Return the first segment in which the byte `seq` passed the hook, or NULL if the hook did not see the byte. */
static const struct mark *find_mark(const struct marks *marks, uint32_t seq)
{
	for (size_t i = marks->first; i < marks->first + marks->n; i++) {
		if (!is_before(seq, marks->at[i].seq) && is_before(seq, marks->at[i].end))
			return &marks->at[i];
	}
	return NULL;
}

static void drop_marks(struct marks *marks, uint32_t end)
{
	while (marks->n && !is_before(end, marks->at[marks->first].end)) {
		marks->first++;
		marks->n--;
	}
}

/* ---- streams ---- */

static size_t bucket_of(const struct probe_connection *connection)
{
	uint64_t key = (uint64_t)connection->local << 32 | connection->remote;

	key ^= (uint64_t)connection->local_port << 16 | connection->remote_port;
	return (size_t)(key * 0x9E3779B97F4A7C15ULL >> 40) % STREAM_BUCKETS;
}

static struct stream *find_stream(struct streams *streams, const struct probe_connection *connection,
				  bool make)
{
	struct stream **bucket = &streams->streams[bucket_of(connection)];

	for (struct stream *stream = *bucket; stream; stream = stream->next) {
		if (!memcmp(&stream->connection, connection, sizeof(*connection)))
			return stream;
	}
	if (!make)
		return NULL;
	*bucket =
		memcpy(must(malloc(sizeof(struct stream))),
		       &(struct stream){ .next = *bucket, .connection = *connection }, sizeof(struct stream));
	return *bucket;
}

/* Clear the state of a connection, except for its addresses and ports. */
static void clear_stream(struct stream *stream)
{
	free(stream->in.text);
	free(stream->out.text);
	free(stream->arrived.at);
	free(stream->queued.at);
	free(stream->departed.at);
	*stream = (struct stream){ .next = stream->next, .connection = stream->connection };
}

/* End a closed connection. If the connection ended in the middle of a received message, count it in `cut`. */
static void end_stream(struct streams *streams, struct stream *stream)
{
	if (stream->in.synced && stream->in.size)
		streams->counts.cut++;
	clear_stream(stream);
}

/* Free the state of connections that closed before `before_ns`. If `open` is true, also free open connections. */
static void sweep_streams(struct streams *streams, uint64_t before_ns, bool open)
{
	for (size_t bucket = 0; bucket < STREAM_BUCKETS; bucket++) {
		struct stream **link = &streams->streams[bucket];

		while (*link) {
			struct stream *stream = *link;

			if (stream->t_closed ? stream->t_closed > before_ns : !open) {
				link = &stream->next;
				continue;
			}
			*link = stream->next;
			if (stream->t_closed)
				end_stream(streams, stream);
			else
				clear_stream(stream);
			free(stream);
		}
	}
}

/* ---- waiting messages ---- */

static struct waiting *waiting_at(const struct streams *streams, uint64_t position)
{
	return &streams->waiting[position & (streams->room - 1)];
}

static uint64_t *newest_of(const struct streams *streams, uint64_t key)
{
	return &streams->newest[key & (streams->room - 1)];
}

static void enter_waiting(const struct streams *streams, uint64_t position)
{
	struct waiting *waiting = waiting_at(streams, position);
	uint64_t *newest = newest_of(streams, waiting->key);

	waiting->older = *newest;
	*newest = position + 1;
}

static void make_room(struct streams *streams)
{
	struct streams before = *streams;

	if (streams->tail - streams->head < streams->room)
		return;
	streams->room = streams->room ? 2 * streams->room : ROOM;
	streams->waiting = must(calloc(streams->room, sizeof(*streams->waiting)));
	streams->newest = must(calloc(streams->room, sizeof(*streams->newest)));
	for (uint64_t position = streams->head; position < streams->tail; position++) {
		*waiting_at(streams, position) = *waiting_at(&before, position);
		enter_waiting(streams, position);
	}
	free(before.waiting);
	free(before.newest);
}

static uint64_t key_of(const struct sip_class *class)
{
	uint64_t key = class->call_id_hash ^ class->cseq * 0x9E3779B97F4A7C15ULL;

	key += class->kind * 0xD1B54A32D192ED03ULL;
	return (key ^ key >> 31) * 0xBF58476D1CE4E5B9ULL >> 8;
}

/* Return the oldest received message with this kind, Call-ID and CSeq that no worker has sent on, or NULL. */
static struct waiting *find_waiting(const struct streams *streams, const struct sip_class *class)
{
	uint64_t key = key_of(class);
	struct waiting *found = NULL;

	if (!streams->room)
		return NULL;
	for (uint64_t next = *newest_of(streams, key); next > streams->head;) {
		struct waiting *waiting = waiting_at(streams, next - 1);

		if (!waiting->sent && waiting->key == key)
			found = waiting;
		next = waiting->older;
	}
	return found;
}

static void record_waiting(struct streams *streams, struct waiting *waiting)
{
	struct trace_record *record = &waiting->record;
	struct records *records = streams->records;
	struct stream *stream;

	if (!waiting->sent) {
		record->flags |= TRACE_FLAG_NO_SEND;
	} else if (!record->t_dep) {
		record->flags |= TRACE_FLAG_NO_DEP;
		stream = find_stream(streams, &waiting->out, false);
		if (stream && stream->undeparted)
			stream->undeparted--;
	}
	if (!is_in_run(records, record->t_sip_in))
		return;
	keep_record(records, record);
	if (waiting->slot < PROBE_WORKERS)
		records->messages[waiting->slot]++;
}

static bool has_left(const struct waiting *waiting)
{
	return waiting->sent && waiting->record.t_dep;
}

static bool is_done(const struct streams *streams, const struct waiting *waiting)
{
	if (streams->now_ns > waiting->record.t_sip_in + HOLD_NS)
		return true;
	/*
	 * Keep a message until its worker reads again, because until then, the worker may send further messages while
	 * it serves this message.
	 */
	return has_left(waiting) &&
	       streams->services[waiting->slot % PROBE_WORKERS].number != waiting->service;
}

/* ---- received messages ---- */

/*
 * Set the times of a message's arrival (t_arr), queueing (t_stack) and dequeueing (t_sockq). If the probe knows no
 * arrival, set only a flag. If the queueing time is missing or later than t_sockq, set t_stack to t_arr.
 */
static void set_receive_times(struct trace_record *record, const struct probe_call *read,
			      const struct mark *arrived, const struct mark *queued)
{
	if (!arrived) {
		record->flags |= TRACE_FLAG_UNMATCHED;
		return;
	}
	record->t_arr = arrived->t;
	record->t_sockq = read->t_taken;
	if (queued && queued->t <= read->t_taken) {
		record->t_stack = queued->t;
		record->rmem = queued->rmem;
	} else {
		record->t_stack = arrived->t;
		record->flags |= TRACE_FLAG_NO_STACK;
	}
}

/*
 * Add the newest message, at position `tail`, to the messages that the worker's last read completed. If one read
 * completes several messages, set TRACE_FLAG_SHARED_READ in their records.
 */
static void enter_service(struct streams *streams, struct service *service)
{
	if (service->first < service->last) {
		waiting_at(streams, streams->tail)->record.flags |= TRACE_FLAG_SHARED_READ;
		if (service->first >= streams->head)
			waiting_at(streams, service->first)->record.flags |= TRACE_FLAG_SHARED_READ;
	} else {
		service->first = streams->tail;
	}
	service->last = streams->tail + 1;
}

/* Add a completely read message to the waiting messages. `last` is the sequence number of the message's last byte. */
static void receive(struct streams *streams, struct stream *stream, const struct probe_call *read,
		    const char *text, size_t size, uint32_t last)
{
	const struct mark *arrived = find_mark(&stream->arrived, last);
	const struct mark *queued = find_mark(&stream->queued, last);
	struct service *service = &streams->services[read->slot % PROBE_WORKERS];
	struct waiting *waiting;
	struct sip_class class;

	/* Ignore a message that may have arrived before recording began, or while recording was being switched off. */
	if (!arrived && (read->t < streams->since_ns + (stream->timed ? UNDERWAY_NS : BEHIND_NS) ||
			 (streams->until_ns && read->t >= streams->until_ns)))
		return;
	class = sip_classify(text, size, streams->records->key);
	streams->records->unclassified += !class.complete;
	if (is_in_run(streams->records, read->t)) {
		streams->counts.received++;
		streams->counts.unmatched += !arrived;
	}
	make_room(streams);
	waiting = waiting_at(streams, streams->tail);
	*waiting = (struct waiting){
		.record = {
			.t_sip_in = read->t,
			.tid = read->tid,
			.cpu = saturate_u16(read->cpu),
			.call_id_hash = class.call_id_hash,
			.cseq = class.cseq,
			.kind = class.kind,
			.length = saturate_u16(size),
			.event = TRACE_EVENT_MESSAGE,
		},
		.key = key_of(&class),
		.service = service->number,
		.slot = read->slot,
	};
	set_receive_times(&waiting->record, read, arrived, queued);
	if (arrived)
		stream->timed = true;
	if (stream->in.began.t != read->t)
		waiting->record.flags |= TRACE_FLAG_SPLIT;
	enter_service(streams, service);
	enter_waiting(streams, streams->tail);
	streams->tail++;
}

/* ---- sent messages ---- */

/* Return whether the write happened while the same worker served the received message `waiting`. */
static bool serves(const struct streams *streams, const struct waiting *waiting,
		   const struct probe_call *write)
{
	return waiting->slot == write->slot && waiting->record.tid == write->tid &&
	       streams->services[write->slot % PROBE_WORKERS].number == waiting->service;
}

static void count_send(struct streams *streams, const struct sip_class *class, const struct probe_call *write)
{
	const struct service *service = &streams->services[write->slot % PROBE_WORKERS];

	for (uint64_t position = service->first; position < service->last; position++) {
		struct waiting *waiting = waiting_at(streams, position);

		if (position >= streams->head && serves(streams, waiting, write) &&
		    waiting->record.call_id_hash == class->call_id_hash && waiting->record.n_send < UINT8_MAX)
			waiting->record.n_send++;
	}
}

/*
 * Find the received message that the written message forwards. In the record of the received message, set t_sip_out
 * (the time of the write) and, if the departure is already known, t_dep.
 */
static void forward(struct streams *streams, struct stream *stream, const struct probe_call *write,
		    const char *text, size_t size, uint32_t last)
{
	const struct probe_call *began = &stream->out.began;
	struct sip_class class = sip_classify(text, size, streams->records->key);
	struct waiting *waiting = class.kind && class.call_id_hash ? find_waiting(streams, &class) : NULL;
	const struct mark *departed = find_mark(&stream->departed, last);

	if (is_in_run(streams->records, write->t))
		streams->counts.sent++;
	count_send(streams, &class, began);
	if (!waiting || began->t < waiting->record.t_sip_in)
		return;
	waiting->sent = true;
	waiting->last = last;
	waiting->out = stream->connection;
	waiting->record.t_sip_out = began->t;
	if (serves(streams, waiting, began)) {
		waiting->record.off_cpu_ns = saturate_u32(began->off_cpu_ns);
		waiting->record.switches = saturate_u16(began->switches);
		waiting->record.in_cost_ns = saturate_u16(began->cost_ns);
	} else {
		/*
		 * Another worker forwarded the message, or the same worker forwarded the message after a further read.
		 */
		waiting->record.flags |= TRACE_FLAG_LEFT;
	}
	if (departed)
		waiting->record.t_dep = departed->t;
	else
		stream->undeparted++;
}

/* ---- cutting ---- */

typedef void message_action(struct streams *streams, struct stream *stream, const struct probe_call *call,
			    const char *text, size_t size, uint32_t last);

/* Return whether a text may be the start of a message: a method in capitals, or `SIP/` (RFC 3261 7.1, 7.2). */
static bool begins_message(const char *text, size_t size)
{
	size_t first = 0, at;

	while (first < size && (text[first] == '\r' || text[first] == '\n'))
		first++;
	for (at = first; at < size && text[at] >= 'A' && text[at] <= 'Z';)
		at++;
	return at == size || (at > first && (text[at] == ' ' || text[at] == '/'));
}

static void lose_track(struct streams *streams, struct flow *flow)
{
	if (flow->synced)
		streams->counts.broken++;
	streams->counts.skipped_bytes += flow->size;
	flow->size = 0;
	flow->synced = false;
}

/* Append the bytes of a system call to `text`. Return false if the call adds no bytes of a message. */
static bool extend(struct streams *streams, struct flow *flow, const struct probe_transfer *transfer)
{
	const char *data = transfer->data;
	uint32_t seq = transfer->call.seq;
	size_t size = transfer->call.length;

	if (flow->synced && is_before(seq, flow->next)) {
		/* Skip bytes that the worker has read before, as with MSG_PEEK. */
		if (flow->next - seq >= size)
			return false;
		data += flow->next - seq;
		size -= flow->next - seq;
		seq = flow->next;
	}
	if (flow->synced && seq != flow->next)
		/* The bytes before the piece of the stream are missing, so search for the start of the next message. */
		lose_track(streams, flow);
	if (!flow->synced && !begins_message(data, size)) {
		streams->counts.skipped_bytes += size;
		flow->next = seq + (uint32_t)size;
		return false;
	}
	if (flow->size + size > flow->room) {
		flow->room = flow->size + size + PROBE_PIECE;
		flow->text = must(realloc(flow->text, flow->room));
	}
	if (!flow->size)
		flow->began = transfer->call;
	memcpy(flow->text + flow->size, data, size);
	flow->size += size;
	flow->next = seq + (uint32_t)size;
	flow->synced = true;
	return true;
}

static void cut_messages(struct streams *streams, struct stream *stream, struct flow *flow,
			 const struct probe_call *call, message_action *action)
{
	size_t used = 0;

	while (used < flow->size) {
		struct frame frame;
		enum frame_state state = frame_cut(flow->text + used, flow->size - used, &frame);

		if (state == FRAME_BROKEN) {
			flow->size -= used;
			lose_track(streams, flow);
			return;
		}
		used += frame.skip;
		if (state == FRAME_PARTIAL)
			break;
		action(streams, stream, call, flow->text + used, frame.length,
		       flow->next - (uint32_t)(flow->size - used - frame.length) - 1);
		used += frame.length;
		flow->began = *call;
	}
	flow->size -= used;
	memmove(flow->text, flow->text + used, flow->size);
}

static void on_read(struct streams *streams, const struct probe_transfer *transfer)
{
	const struct probe_call *read = &transfer->call;
	struct stream *stream = find_stream(streams, &read->connection, true);
	struct service *service = &streams->services[read->slot % PROBE_WORKERS];

	if (service->t != read->t) {
		service->t = read->t;
		service->number++;
		service->first = service->last = streams->tail;
	}
	if (extend(streams, &stream->in, transfer))
		cut_messages(streams, stream, &stream->in, read, receive);
	drop_marks(&stream->arrived, stream->in.next - (uint32_t)stream->in.size);
	drop_marks(&stream->queued, stream->in.next - (uint32_t)stream->in.size);
}

static void on_written(struct streams *streams, const struct probe_transfer *transfer)
{
	struct stream *stream = find_stream(streams, &transfer->call.connection, true);

	if (extend(streams, &stream->out, transfer))
		cut_messages(streams, stream, &stream->out, &transfer->call, forward);
	drop_marks(&stream->departed, stream->out.next - (uint32_t)stream->out.size);
}

/* Store the departure of a segment. Set t_dep of each sent message whose last byte is in the segment. */
static void on_departed(struct streams *streams, const struct probe_segment *segment)
{
	struct stream *stream = find_stream(streams, &segment->connection, true);

	add_mark(&stream->departed, segment);
	for (uint64_t position = streams->head; stream->undeparted && position < streams->tail; position++) {
		struct waiting *waiting = waiting_at(streams, position);

		if (!waiting->sent || waiting->record.t_dep || is_before(waiting->last, segment->seq) ||
		    !is_before(waiting->last, segment->seq + segment->length) ||
		    memcmp(&waiting->out, &segment->connection, sizeof(waiting->out)) != 0)
			continue;
		waiting->record.t_dep = segment->t;
		stream->undeparted--;
	}
}

int on_stream_event(void *context, void *data, size_t size)
{
	struct streams *streams = context;
	const struct probe_segment *segment = data;
	const uint32_t *event = data;
	/* Read t for every kind of event: probe_segment and probe_call have the member t at the same offset. */
	uint64_t t = segment->t;
	struct stream *stream;

	(void)size;
	switch (*event) {
	case PROBE_EVENT_READ:
		on_read(streams, data);
		break;
	case PROBE_EVENT_WRITTEN:
		on_written(streams, data);
		break;
	case PROBE_EVENT_ARRIVED:
		add_mark(&find_stream(streams, &segment->connection, true)->arrived, segment);
		break;
	case PROBE_EVENT_QUEUED:
		add_mark(&find_stream(streams, &segment->connection, true)->queued, segment);
		break;
	case PROBE_EVENT_DEPARTED:
		on_departed(streams, segment);
		break;
	case PROBE_EVENT_OPENED:
		stream = find_stream(streams, &segment->connection, false);
		/* Clear the state of an earlier, closed connection with the same addresses and ports. */
		if (stream && stream->t_closed)
			end_stream(streams, stream);
		break;
	case PROBE_EVENT_CLOSED:
		stream = find_stream(streams, &segment->connection, false);
		if (stream)
			stream->t_closed = segment->t;
		break;
	default:
		break;
	}
	if (t > streams->now_ns)
		streams->now_ns = t;
	return 0;
}

/* ---- the interface ---- */

void streams_afresh(struct streams *streams)
{
	streams->counts = (struct stream_counts){ 0 };
}

void settle_streams(struct streams *streams)
{
	while (streams->head < streams->tail) {
		struct waiting *waiting = waiting_at(streams, streams->head);

		if (!is_done(streams, waiting))
			break;
		record_waiting(streams, waiting);
		streams->head++;
	}
	if (streams->now_ns < streams->t_sweep_ns + SWEEP_NS)
		return;
	streams->t_sweep_ns = streams->now_ns;
	sweep_streams(streams, streams->now_ns - CLOSED_NS, false);
}

uint64_t count_waiting(const struct streams *streams)
{
	uint64_t waiting = 0;

	for (uint64_t position = streams->head; position < streams->tail; position++)
		waiting += !has_left(waiting_at(streams, position));
	return waiting;
}

static bool is_unread(const struct stream *stream)
{
	const struct marks *arrived = &stream->arrived;

	return stream->in.synced && arrived->n &&
	       is_before(stream->in.next, arrived->at[arrived->first + arrived->n - 1].end);
}

uint64_t count_unread(const struct streams *streams)
{
	uint64_t unread = 0;

	for (size_t bucket = 0; bucket < STREAM_BUCKETS; bucket++) {
		for (struct stream *stream = streams->streams[bucket]; stream; stream = stream->next)
			unread += is_unread(stream);
	}
	return unread;
}

void forget_streams(struct streams *streams)
{
	for (; streams->head < streams->tail; streams->head++) {
		struct waiting *waiting = waiting_at(streams, streams->head);

		if (has_left(waiting))
			record_waiting(streams, waiting);
	}
	for (size_t bucket = 0; bucket < STREAM_BUCKETS; bucket++) {
		for (struct stream *stream = streams->streams[bucket]; stream; stream = stream->next) {
			uint64_t t_closed = stream->t_closed;

			clear_stream(stream);
			stream->t_closed = t_closed;
		}
	}
	memset(streams->services, 0, sizeof(streams->services));
}

void end_streams(struct streams *streams)
{
	for (; streams->head < streams->tail; streams->head++)
		record_waiting(streams, waiting_at(streams, streams->head));
	sweep_streams(streams, UINT64_MAX, true);
	free(streams->waiting);
	free(streams->newest);
	streams->waiting = NULL;
	streams->newest = NULL;
	streams->room = 0;
}
