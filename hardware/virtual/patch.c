// SPDX-License-Identifier: MIT
/*
 * QEMU reads the host's time stamp counter by an inlined instruction, RDTSC, which no preloaded library can replace. Therefore
 * this file replaces the code around each RDTSC in the running QEMU by a jump to code that calls now_ns(). The guest's counter
 * then runs at 1 GHz.
 */
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include "virtual.h"

#define MIB 1048576UL
/*
 * The new page with the code that calls now_ns() lies before QEMU's code, at a distance between NEAREST and FARTHEST.
 * QEMU has less than 64 MiB of code, and a jump reaches 2 GiB.
 */
#define NEAREST  (64 * MIB)
#define FARTHEST (1024 * MIB)
#define STEP     (16 * MIB)

/* rdtsc; shl $32,%rdx; mov %eax,%eax; or %rdx,%rax */
static const uint8_t read_counter[] = { 0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x89, 0xc0, 0x48, 0x09, 0xd0 };
/* clang-format off */
/*
 * Save the registers that a call may change, except the result register, below the 128 bytes of the surrounding code's
 * red zone.
 */
static const uint8_t before_call[] = {
	0x48, 0x8d, 0xa4, 0x24, 0x00, 0xff, 0xff, 0xff, /* lea -256(%rsp),%rsp */
	0x55, 0x48, 0x89, 0xe5,				/* push %rbp; mov %rsp,%rbp */
	0x51, 0x52, 0x56, 0x57,				/* push %rcx; push %rdx; push %rsi; push %rdi */
	0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, /* push %r8; push %r9; push %r10; push %r11 */
	0x48, 0x83, 0xe4, 0xf0,				/* and $-16,%rsp */
	0x48, 0xb8,					/* mov $address,%rax: the address follows */
};
static const uint8_t after_call[] = {
	0xff, 0xd0,					/* call *%rax */
	0x48, 0x8d, 0x65, 0xc0,				/* lea -64(%rbp),%rsp */
	0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, /* pop %r11; pop %r10; pop %r9; pop %r8 */
	0x5f, 0x5e, 0x5a, 0x59,				/* pop %rdi; pop %rsi; pop %rdx; pop %rcx */
	0x5d,						/* pop %rbp */
	0x48, 0x8d, 0xa4, 0x24, 0x00, 0x01, 0x00, 0x00, /* lea 256(%rsp),%rsp */
	0xe9,						/* jmp: the distance follows */
};
/* clang-format on */

static uint8_t *append(uint8_t *at, const void *bytes, size_t count)
{
	memcpy(at, bytes, count);
	return at + count;
}

/* Write code that calls now_ns() instead of one read of the time stamp counter. Return the end of this code. */
static uint8_t *write_stub(uint8_t *stub, const uint8_t *return_to)
{
	uintptr_t clock = (uintptr_t)now_ns;
	int32_t back;

	stub = append(stub, before_call, sizeof(before_call));
	stub = append(stub, &clock, sizeof(clock));
	stub = append(stub, after_call, sizeof(after_call));
	back = (int32_t)(return_to - (stub + sizeof(back)));
	return append(stub, &back, sizeof(back));
}

/* Return a new page for code within reach of jumps from `text`, or NULL if no such page is free. */
static uint8_t *map_near(uintptr_t text)
{
	for (uintptr_t distance = NEAREST; distance < FARTHEST && distance < text; distance += STEP) {
		uint8_t *page = mmap((void *)(text - distance), 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (page != MAP_FAILED)
			return page;
	}
	return NULL;
}

/* Replace the reads of the time stamp counter in the code from `text` to `end`. Return the number of these reads. */
static int patch_text(uint8_t *text, uint8_t *end)
{
	uint8_t *start = (uint8_t *)((uintptr_t)text & ~4095UL), *page = NULL, *stub = NULL;
	int reads = 0;

	for (uint8_t *at = text; (at = memmem(at, (size_t)(end - at), read_counter, sizeof(read_counter)));
	     at += sizeof(read_counter), reads++) {
		int32_t distance;

		if (!page) {
			stub = page = map_near((uintptr_t)start);
			if (!page ||
			    mprotect(start, (size_t)(end - start), PROT_READ | PROT_WRITE | PROT_EXEC))
				return 0;
		}
		distance = (int32_t)(stub - (at + 5));
		stub = write_stub(stub, at + sizeof(read_counter));
		at[0] = 0xe9; /* jmp */
		memcpy(at + 1, &distance, sizeof(distance));
	}
	if (page) {
		mprotect(start, (size_t)(end - start), PROT_READ | PROT_EXEC);
		mprotect(page, 4096, PROT_READ | PROT_EXEC);
	}
	return reads;
}

static int patch_program(struct dl_phdr_info *program, size_t size, void *reads)
{
	(void)size;
	for (int i = 0; i < program->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &program->dlpi_phdr[i];
		uint8_t *text = (uint8_t *)program->dlpi_addr + header->p_vaddr;

		if (header->p_type == PT_LOAD && header->p_flags & PF_X)
			*(int *)reads += patch_text(text, text + header->p_memsz);
	}
	return 1; /* the first object is the program itself, so end the iteration, because libraries stay unchanged */
}

int patch_counter_reads(void)
{
	int reads = 0;

	dl_iterate_phdr(patch_program, &reads);
	return reads;
}
