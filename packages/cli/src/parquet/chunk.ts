/**
 * Column chunks from typed arrays. hyparquet-writer's own take a JavaScript value for each cell, which costs more than reading and
 * analyzing the capture does; its page headers and its compression are used here.
 */
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { writePageHeader } from 'hyparquet-writer/src/datapage.js';
import { snappyCompress } from 'hyparquet-writer/src/snappy.js';
import type { Taken } from './cells.ts';
import { type ColumnType, schemaOf } from './columns.ts';

type ColumnChunk = ParquetWriter['row_groups'][number]['columns'][number];
type Encoding = NonNullable<ColumnChunk['meta_data']>['encodings'][number];
type Physical = 'BOOLEAN' | 'INT32' | 'INT64' | 'BYTE_ARRAY';

const PHYSICAL: Readonly<Record<string, Physical>> = {
  STRING: 'BYTE_ARRAY',
  BOOLEAN: 'BOOLEAN',
  INT32: 'INT32',
  INT64: 'INT64',
  TIMESTAMP: 'INT64',
};

interface ChunkColumn {
  name: string;
  type: ColumnType;
  isSought?: boolean | undefined;
}

/** Writes a column of a row group, one data page, and returns its place and statistics. */
export function writeChunk(writer: ByteWriter, column: ChunkColumn, taken: Taken): ColumnChunk {
  const begin = writer.offset;
  const { count, isNull, values } = taken;
  const type = PHYSICAL[column.type.replace('?', '')];
  const nulls = count - values.length;
  // A page of places costs next to nothing where all are the same.
  const dictionary = taken.dictionary ?? (isConstant(values) && type !== 'BOOLEAN' ? [values[0]] : undefined);
  const hasDictionary = dictionary !== undefined && values.length > 0;
  let uncompressed = 0;
  if (hasDictionary) uncompressed += writeDictionary(writer, dictionary, values);
  const page = writer.offset;
  const body = hasDictionary
    ? placesOf(values as Uint16Array, dictionary.length, taken.dictionary === undefined)
    : type === 'BOOLEAN'
      ? packed(values as Uint8Array, 1)
      : bytesOf(values);
  const encoding: Encoding = hasDictionary ? 'RLE_DICTIONARY' : 'PLAIN';
  const levels = column.type.endsWith('?') ? levelsOf(count, isNull) : new Uint8Array();
  const compressed = snappyCompress(body);
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
      is_compressed: true,
    },
  });
  uncompressed += writer.offset - page + levels.length + body.length;
  writer.appendBytes(levels);
  writer.appendBytes(compressed);
  const statistics = column.isSought === true ? statisticsOf(values, nulls) : undefined;
  return {
    file_offset: BigInt(begin),
    meta_data: {
      type,
      encodings: hasDictionary ? ['PLAIN', encoding] : [encoding],
      path_in_schema: [column.name],
      codec: 'SNAPPY',
      num_values: BigInt(count),
      total_compressed_size: BigInt(writer.offset - begin),
      total_uncompressed_size: BigInt(uncompressed),
      data_page_offset: BigInt(page),
      ...(hasDictionary && { dictionary_page_offset: BigInt(begin) }),
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

function isConstant(values: Taken['values']): boolean {
  const [first] = values;
  for (let i = 1; i < values.length; i++) if (values[i] !== first) return false;
  return true;
}

/** @returns the bytes of the page, header and all, before compression */
function writeDictionary(writer: ByteWriter, names: readonly unknown[], values: Taken['values']): number {
  const begin = writer.offset;
  const page = new ByteWriter();
  if (typeof names[0] === 'string') {
    for (const name of names) {
      const bytes = new TextEncoder().encode(name as string);
      page.appendUint32(bytes.length);
      page.appendBytes(bytes);
    }
  } else page.appendBytes(bytesOf(values.subarray(0, 1)));
  const body = page.getBytes();
  const compressed = snappyCompress(body);
  writePageHeader(writer, {
    type: 'DICTIONARY_PAGE',
    uncompressed_page_size: body.length,
    compressed_page_size: compressed.length,
    dictionary_page_header: { num_values: names.length, encoding: 'PLAIN' },
  });
  const header = writer.offset - begin;
  writer.appendBytes(compressed);
  return header + body.length;
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Taken['values']): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** Places in a dictionary: their width, and runs of them. */
function placesOf(values: Uint16Array, size: number, isOne: boolean): Uint8Array {
  if (isOne || size === 1) return Uint8Array.of(1, ...run(values.length), 0);
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

function bitPacked(values: Uint8Array | Uint16Array, width: number, before: number[] = []): Uint8Array {
  const head = [...before, ...varint(Math.ceil(values.length / 8) * 2 + 1)];
  const body = packed(values, width);
  const out = new Uint8Array(head.length + Math.ceil(values.length / 8) * width);
  out.set(head);
  out.set(body, head.length);
  return out;
}

/** The lowest `width` bits of each value, one behind the other. */
function packed(values: Uint8Array | Uint16Array, width: number): Uint8Array {
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
function statisticsOf(values: Taken['values'], nulls: number) {
  const null_count = BigInt(nulls);
  if (values.length === 0) return { null_count };
  const [min, max] = values instanceof BigInt64Array ? rangeOfWide(values) : rangeOf(values);
  return { null_count, min_value: values[min], max_value: values[max] };
}

/** Where the least and the most are. */
function rangeOf(values: Exclude<Taken['values'], BigInt64Array>): [min: number, max: number] {
  let min = 0;
  let max = 0;
  for (let i = 1; i < values.length; i++) {
    if (values[i] < values[min]) min = i;
    if (values[i] > values[max]) max = i;
  }
  return [min, max];
}

/** By words: a bigint for each would be garbage. */
function rangeOfWide({ buffer, byteOffset, length }: BigInt64Array): [min: number, max: number] {
  const high = new Int32Array(buffer, byteOffset, 2 * length);
  const low = new Uint32Array(buffer, byteOffset, 2 * length);
  const isLess = (i: number, j: number): boolean =>
    high[2 * i + 1] < high[2 * j + 1] || (high[2 * i + 1] === high[2 * j + 1] && low[2 * i] < low[2 * j]);
  let min = 0;
  let max = 0;
  for (let i = 1; i < length; i++) {
    if (isLess(i, min)) min = i;
    if (isLess(max, i)) max = i;
  }
  return [min, max];
}
