// What docs/export.md shows, which must compile beside the modules that Chinook became.
import { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { getTrack, listInvoicesOfCustomer, openTable } from "./chinook_onetable";
import * as electro from "./chinook_electrodb";

export async function usage(client: DynamoDBClient): Promise<unknown[]> {
  const table = openTable(client);
  const track = await getTrack(table, { track_id: 7 });
  const composer: string | undefined = track?.composer;
  const dates = { from: "2021-01-01", to: "2022-01-01" };
  const totals: number[] = (await listInvoicesOfCustomer(table, { customer_id: 3, ...dates })).map((one) => one.total);
  const genre = await table.getModel("Genre").create({ genre_id: 99, name: "Polka" }, { execute: false });
  const same = await table.getModel("Track").get({ track_id: 7 });

  const all = electro.entities(client);
  const stored: electro.Genre | null = (await all.Genre.get(electro.genreKeys({ genre_id: 99 })).go({ ignoreOwnership: true })).data;
  const put = all.Genre.put({ ...electro.genreKeys({ genre_id: 99 }), genre_id: 99, name: "Polka" }).params();
  const found = await electro.getTrack(all, { track_id: 7 });
  return [composer, totals, genre, same?.name, stored, put, found?.name];
}
