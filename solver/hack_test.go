package solver
import ("testing";"fmt")
func TestHack(t *testing.T){
 for _,c:=range loadCases(t) { p:=loadProblem(t,c); pl,err:=Solve(p); if err!=nil{t.Fatal(err)}
 ex,err:=Explain(p,pl)
 fmt.Println(c.Profile, pl.Predicted, err)
 for _,a:=range pl.Alternatives {fmt.Println("  ",a)}
 for i,r:=range pl.Ranks {fmt.Println("  ",r.Device,r.Batch,r.MicroBatches,r.StatePPM,r.Activations,ex.Ranks[i].Limit,ex.Ranks[i].Why,ex.Ranks[i].IdleShare)}
 fmt.Println("  unused",ex.Unused,"help", ex.Help)
 }
}
