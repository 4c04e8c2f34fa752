/**
 * The memory of one program, in two ways. Shared: a sparse file in which the offset of a page is its address in the program. Attached:
 * the program's own, by a descriptor of its /proc/self/mem.
 */
import { closeSync } from 'node:fs';
import {
  createSharedFile,
  mapSharedFile,
  type ProcessMemory,
  unmapSharedFile,
} from '@node-roce/dgram-native';
import { setReach } from '@node-roce/transport';

/** Addresses of programs end here (x86-64 and arm64, 48 bits). */
const ADDRESS_END = 2n ** 47n;
/**
 * Granularity of the mapping, in turn. No kernel that Node runs on has pages larger than 64 KiB (arm64 may have these); a region for which
 * they would be too many is mapped in pages of 4 KiB.
 */
const PAGES = [65_536, 4096];
const WASM_PAGE = 65_536;
/** Bytes of a region at most: what one WebAssembly.Memory has. */
export const MAX_BYTES = 2 ** 32;

/** Mappings of one program at most: each reserves about 10 GiB of our address space, and all programs share it. */
export const MAX_MAPPINGS = 2048;

/** The part of WebAssembly that is used here: Node has it, its types lack it. */
declare const WebAssembly: {
  Memory: new (options: { shared: true; initial: number; maximum: number }) => { buffer: SharedArrayBuffer };
};

/** A part of the memory, mapped here. */
export interface Mapping {
  /** The bytes that were asked for, over a SharedArrayBuffer: the program writes them while we read. */
  readonly bytes: Uint8Array;
  /** The whole pages around them. */
  readonly pages: Uint8Array;
}

type Pages = Uint8Array & { buffer: SharedArrayBuffer };

/** The whole pages around a range: their bytes, and those before the range. */
function pagesAround(address: bigint, length: number, page: number): { skip: number; bytes: number } {
  const skip = Number(address % BigInt(page));
  return { skip, bytes: Math.ceil((skip + length) / page) * page };
}

/** Zeros in whole pages. */
function newPages(bytes: number): Pages {
  const wasmPages = Math.ceil(bytes / WASM_PAGE);
  // Its buffer is page-aligned, and its memory is given back by munmap: pages of a file may lie there.
  const { buffer } = new WebAssembly.Memory({ shared: true, initial: wasmPages, maximum: wasmPages });
  return new Uint8Array(buffer, 0, bytes);
}

/** Whole pages of a file of `createSharedFile`, mapped here. */
export function mapFile(fd: number, offset: number, bytes: number): Pages {
  const pages = newPages(bytes);
  mapSharedFile(pages, fd, offset);
  return pages;
}

/** The file's pages have one reader less. */
export const unmapFile = unmapSharedFile;

/** The registered memory of one program. */
export class ProgramMemory {
  readonly fd = createSharedFile(Number(ADDRESS_END));
  /** For what is not in the file; undefined until the program has handed it over. */
  process: ProcessMemory | undefined;
  readonly #mapped = new Set<Mapping>();
  #users = 0;

  /** One more user: `release` of the last one closes the file. */
  retain(): this {
    this.#users++;
    return this;
  }

  /**
   * Maps a range of the program's addresses; undefined where no program can have it, or it is too long, or (`attach`) its ends can't be
   * read.
   *
   * @param attach its bytes are fetched and stored where the program has them, for each packet
   * @throws RangeError where no memory is left for it, or the program has its share
   */
  map(address: bigint, length: bigint, attach = false): Mapping | undefined {
    if (length === 0n || length > BigInt(MAX_BYTES) || address > ADDRESS_END - length) return undefined;
    if (this.#mapped.size >= MAX_MAPPINGS) throw new RangeError(`more than ${MAX_MAPPINGS} regions`);
    const around = PAGES.map((page) => pagesAround(address, Number(length), page));
    const chosen = around.find(({ bytes }) => bytes <= MAX_BYTES);
    if (!chosen) return undefined;
    const { skip, bytes } = chosen;
    const first = Number(address) - skip;
    const pages = attach ? this.#attach(first, bytes, skip, Number(length)) : mapFile(this.fd, first, bytes);
    if (!pages) return undefined;
    const mapping = { bytes: pages.subarray(skip, skip + Number(length)), pages };
    this.#mapped.add(mapping);
    return mapping;
  }

  /** Pages that stand for those from `first` on. */
  #attach(first: number, bytes: number, skip: number, length: number): Pages | undefined {
    const { process } = this;
    const pages = newPages(bytes);
    const ends = [skip, skip + length - 1];
    if (!process || !ends.every((at) => process.pull(pages, at, 1, first + at))) return undefined;
    setReach(pages.buffer, {
      pull: (offset, length) => process.pull(pages, offset, length, first + offset),
      push: (from, source, offset, length) => process.push(from, source, length, first + offset),
      forget: () => unmapFile(pages),
    });
    return pages;
  }

  unmap(mapping: Mapping): void {
    if (this.#mapped.delete(mapping)) unmapFile(mapping.pages);
  }

  release(): void {
    if (--this.#users > 0) return;
    for (const mapping of this.#mapped) unmapFile(mapping.pages);
    this.#mapped.clear();
    closeSync(this.fd);
    this.process?.close();
  }
}
