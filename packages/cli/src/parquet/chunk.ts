/**
 * Column chunks from typed arrays. hyparquet-writer's own take a JavaScript value for each cell, which costs more than reading and
 * analyzing the capture does; its page headers, its compression and its packed differences are used here.
 */
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { writePageHeader } from 'hyparquet-writer/src/datapage.js';
import { deltaBinaryPack } from 'hyparquet-writer/src/delta.js';
import { snappyCompress } from 'hyparquet-writer/src/snappy.js';
import type { Taken } from './cells.ts';
import { type ColumnType, schemaOf } from './columns.ts';

type ColumnChunk = ParquetWriter['row_groups'][number]['columns'][number];
type Encoding = NonNullable<ColumnChunk['meta_data']>['encodings'][number];
type Physical = 'BOOLEAN' | 'INT32' | 'INT64' | 'BYTE_ARRAY';
type Values = Taken['values'];

const PHYSICAL: Readonly<Record<string, Physical>> = {
  STRING: 'BYTE_ARRAY',
  BOOLEAN: 'BOOLEAN',
  INT32: 'INT32',
  INT64: 'INT64',
  TIMESTAMP: 'INT64',
};

/** Places in a dictionary. */
type Places = Uint8Array | Uint16Array;

/** A column of more distinct numbers than this is written as differences. */
const MAX_DICTIONARY = 256;
/** Of the table that finds them. */
const SLOTS = 1024;
const SLOT_SHIFT = 22;

interface ChunkColumn {
  name: string;
  type: ColumnType;
  origin?: (() => bigint) | undefined;
  isSought?: boolean | undefined;
}

/** The values of a data page. */
interface Page {
  encoding: Encoding;
  body: Uint8Array;
  /** The entries of the dictionary page, as plain values. */
  dictionary?: { count: number; body: Uint8Array };
}

/** Writes a column of a row group, one data page, and returns its place and statistics. */
export function writeChunk(writer: ByteWriter, column: ChunkColumn, taken: Taken): ColumnChunk {
  const begin = writer.offset;
  const { count, isNull, values } = taken;
  const type = PHYSICAL[column.type.replace('?', '')];
  const origin = column.origin?.() ?? 0n;
  const nulls = count - values.length;
  const { encoding, body, dictionary } = pageOf(taken, type, origin);
  let uncompressed = 0;
  if (dictionary !== undefined) uncompressed += writeDictionary(writer, dictionary);
  const page = writer.offset;
  const levels = column.type.endsWith('?') ? levelsOf(count, isNull) : new Uint8Array();
  // Compression finds nothing in packed differences, and takes longest there.
  const is_compressed = encoding !== 'DELTA_BINARY_PACKED';
  const compressed = is_compressed ? snappyCompress(body) : body;
  writePageHeader(writer, {
    type: 'DATA_PAGE_V2',
    uncompressed_page_size: levels.length + body.length,
    compressed_page_size: levels.length + compressed.length,
    data_page_header_v2: {
      num_values: count,
      num_nulls: nulls,
      num_rows: count,
      encoding,
      definition_levels_byte_length: levels.length,
      repetition_levels_byte_length: 0,
      is_compressed,
    },
  });
  uncompressed += writer.offset - page + levels.length + body.length;
  writer.appendBytes(levels);
  writer.appendBytes(compressed);
  const statistics = column.isSought === true ? statisticsOf(values, nulls, origin) : undefined;
  return {
    file_offset: BigInt(begin),
    meta_data: {
      type,
      encodings: dictionary === undefined ? [encoding] : ['PLAIN', encoding],
      path_in_schema: [column.name],
      codec: 'SNAPPY',
      num_values: BigInt(count),
      total_compressed_size: BigInt(writer.offset - begin),
      total_uncompressed_size: BigInt(uncompressed),
      data_page_offset: BigInt(page),
      ...(dictionary !== undefined && { dictionary_page_offset: BigInt(begin) }),
      ...(statistics && { statistics }),
    },
  };
}

/** The same for lists, of which there are few: by hyparquet-writer, into bytes of its own. */
export function writeListChunk(writer: ByteWriter, column: ChunkColumn, rows: unknown[]): ColumnChunk {
  const bytes = new ByteWriter();
  const one = new ParquetWriter({ writer: bytes, schema: schemaOf([column]), statistics: false });
  const signature = bytes.offset;
  one.write({ columnData: [{ name: column.name, data: rows }], rowGroupSize: rows.length, pageSize: 0 });
  const begin = writer.offset;
  writer.appendBytes(bytes.getBytes().subarray(signature));
  const { meta_data } = one.row_groups[0].columns[0];
  const moved = (offset: bigint): bigint => offset + BigInt(begin - signature);
  const { data_page_offset, dictionary_page_offset } = meta_data!;
  return {
    file_offset: BigInt(begin),
    meta_data: {
      ...meta_data!,
      data_page_offset: moved(data_page_offset),
      dictionary_page_offset:
        dictionary_page_offset === undefined ? undefined : moved(dictionary_page_offset),
    },
  };
}

function pageOf({ values, dictionary }: Taken, type: Physical, origin: bigint): Page {
  if (values.length === 0) return { encoding: 'PLAIN', body: new Uint8Array() };
  if (values instanceof Float64Array) return wides(values, origin);
  if (values instanceof Int32Array) return numbers(values);
  if (type === 'BOOLEAN') return { encoding: 'PLAIN', body: packed(values, 1) };
  return fromDictionary({ count: dictionary!.length, body: plainTexts(dictionary!) }, values);
}

const fromDictionary = (dictionary: NonNullable<Page['dictionary']>, places: Places): Page => ({
  encoding: 'RLE_DICTIONARY',
  body: placesOf(places, dictionary.count),
  dictionary,
});

/** Most columns of packets have few values. */
function numbers(values: Int32Array): Page {
  const few = fewOf(values);
  if (few !== undefined)
    return fromDictionary({ count: few.names.length, body: bytesOf(few.names) }, few.places);
  const packing = new ByteWriter();
  deltaBinaryPack(packing, values, 'INT32');
  return { encoding: 'DELTA_BINARY_PACKED', body: packing.getBytes() };
}

/** Frames and times come nearly in order: differences from the first one are packed, and the first one is put before them. */
function wides(values: Float64Array, origin: bigint): Page {
  const [first] = values;
  const isSame = values.every((value) => value === first);
  if (isSame) {
    const body = bytesOf(BigInt64Array.of(origin + BigInt(first)));
    return fromDictionary({ count: 1, body }, new Uint8Array(values.length));
  }
  const differences = new Int32Array(values.length);
  for (let i = 0; i < values.length; i++) {
    differences[i] = values[i] - first;
    if (differences[i] !== values[i] - first)
      return { encoding: 'PLAIN', body: bytesOf(BigInt64Array.from(values, (v) => origin + BigInt(v))) };
  }
  const packing = new ByteWriter();
  deltaBinaryPack(packing, differences, 'INT64');
  const bytes = packing.getBytes();
  // Behind three numbers stands the first difference, 0: the origin of all that follow (format of Parquet, "Delta encoding").
  let at = 0;
  for (let passed = 0; passed < 3; at++) if (bytes[at] < 0x80) passed++;
  const moved = new ByteWriter(bytes.length + 16);
  moved.appendBytes(bytes.subarray(0, at));
  moved.appendZigZag(origin + BigInt(first));
  moved.appendBytes(bytes.subarray(at + 1));
  return { encoding: 'DELTA_BINARY_PACKED', body: moved.getBytes() };
}

/** The distinct values, and for each value which of them it is; undefined: there are too many. */
function fewOf(values: Int32Array): { names: Int32Array; places: Uint8Array } | undefined {
  const names = new Int32Array(MAX_DICTIONARY);
  const places = new Uint8Array(values.length);
  /** Where in `names` a number stands, by its hash; from 1. */
  const slots = new Uint16Array(SLOTS);
  let count = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    let slot = Math.imul(value, 0x9e3779b1) >>> SLOT_SHIFT;
    while (slots[slot] !== 0 && names[slots[slot] - 1] !== value) slot = (slot + 1) % SLOTS;
    if (slots[slot] === 0) {
      if (count === MAX_DICTIONARY) return undefined;
      names[count++] = value;
      slots[slot] = count;
    }
    places[i] = slots[slot] - 1;
  }
  return { names: names.subarray(0, count), places };
}

/** @returns the bytes of the page, header and all, before compression */
function writeDictionary(writer: ByteWriter, { count, body }: NonNullable<Page['dictionary']>): number {
  const begin = writer.offset;
  const compressed = snappyCompress(body);
  writePageHeader(writer, {
    type: 'DICTIONARY_PAGE',
    uncompressed_page_size: body.length,
    compressed_page_size: compressed.length,
    dictionary_page_header: { num_values: count, encoding: 'PLAIN' },
  });
  const header = writer.offset - begin;
  writer.appendBytes(compressed);
  return header + body.length;
}

function plainTexts(texts: readonly string[]): Uint8Array {
  const page = new ByteWriter();
  const encoder = new TextEncoder();
  for (const text of texts) {
    const bytes = encoder.encode(text);
    page.appendUint32(bytes.length);
    page.appendBytes(bytes);
  }
  return page.getBytes();
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Int32Array | BigInt64Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** Places in a dictionary: their width, and runs of them. */
function placesOf(values: Places, size: number): Uint8Array {
  if (size === 1) return Uint8Array.of(1, ...run(values.length), 0);
  const width = 32 - Math.clz32(size - 1);
  return bitPacked(values, width, [width]);
}

/** Definition levels: 1, or 0 for null. */
function levelsOf(count: number, isNull: Uint8Array | undefined): Uint8Array {
  if (isNull === undefined) return Uint8Array.of(...run(count), 1);
  if (!isNull.includes(0)) return Uint8Array.of(...run(count), 0);
  return bitPacked(
    isNull.map((bit) => 1 - bit),
    1,
  );
}

/** The head of a run of one value (format of Parquet, "RLE / bit-packing hybrid"). */
const run = (count: number): number[] => varint(count * 2);

function bitPacked(values: Places, width: number, before: number[] = []): Uint8Array {
  const head = [...before, ...varint(Math.ceil(values.length / 8) * 2 + 1)];
  const body = packed(values, width);
  const out = new Uint8Array(head.length + Math.ceil(values.length / 8) * width);
  out.set(head);
  out.set(body, head.length);
  return out;
}

/** The lowest `width` bits of each value, one behind the other. */
function packed(values: Places, width: number): Uint8Array {
  const out = new Uint8Array(Math.ceil((values.length * width) / 8));
  let bits = 0;
  let held = 0;
  let at = 0;
  for (let i = 0; i < values.length; i++) {
    bits |= values[i] << held;
    held += width;
    while (held >= 8) {
      out[at++] = bits;
      bits >>>= 8;
      held -= 8;
    }
  }
  if (held > 0) out[at] = bits;
  return out;
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  bytes.push(rest);
  return bytes;
}

/** Least and most of numbers. */
function statisticsOf(values: Values, nulls: number, origin: bigint) {
  const null_count = BigInt(nulls);
  if (values.length === 0) return { null_count };
  let [min] = values;
  let max = min;
  for (let i = 1; i < values.length; i++) {
    if (values[i] < min) min = values[i];
    if (values[i] > max) max = values[i];
  }
  const isWide = values instanceof Float64Array;
  const written = (value: number) => (isWide ? origin + BigInt(value) : value);
  return { null_count, min_value: written(min), max_value: written(max) };
}
