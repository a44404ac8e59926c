// What docs/export-code.md shows, which must compile beside the modules that Chinook became.
import { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { entities, Genre, genreKeys, getTrack, listInvoicesOfCustomer } from "./chinook_electrodb";

export async function usage(client: DynamoDBClient): Promise<unknown[]> {
  const all = entities(client);
  const track = await getTrack(all, { track_id: 7 });
  const composer: string | undefined = track?.composer;
  const dates = { from: "2021-01-01", to: "2022-01-01" };
  const totals: number[] = (await listInvoicesOfCustomer(all, { customer_id: 3, ...dates })).map((one) => one.total);
  const stored: Genre | null = (await all.Genre.get(genreKeys({ genre_id: 99 })).go({ ignoreOwnership: true })).data;
  const put = all.Genre.put({ ...genreKeys({ genre_id: 99 }), genre_id: 99, name: "Polka" }).params();
  return [composer, totals, stored, put];
}
